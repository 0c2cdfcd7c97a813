//! Steps that send too much, or bytes that are no request of a platform.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use paidonce_tests::wire::{self, Request};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::platform::expand_repeat;
use super::report::{StepAnswer, wechat_accepted};
use super::script::text;

/// Bytes written at once into an endless body.
const BLOCK_BYTES: usize = 64 * 1024;
/// Longest wait for the answer to an endless body.
const ENDLESS_WAIT: Duration = Duration::from_secs(30);

/// A bare request, or an endless one.
pub async fn raw_http(to: SocketAddr, step: &Value, path: &str, folder: &Path) -> StepAnswer {
    if let Some(zeros) = step["generate_body"]["zeros"].as_u64() {
        let framing = if text(step, "transfer") == "chunked" { Framing::Chunks } else { Framing::Length };
        return endless(to, path, zeros, framing).await;
    }
    if step.get("generate_body").is_some() {
        return StepAnswer::not_run("raw_http", "a body that this runner can't make");
    }
    let body = match step["body_file"].as_str().map(|file| std::fs::read(folder.join(file))) {
        None => expand_repeat(text(step, "body")).into_bytes(),
        Some(Ok(bytes)) => bytes,
        Some(Err(e)) => return StepAnswer::not_run("raw_http", format!("body_file: {e}")),
    };
    let mut request = Request::new(step["method"].as_str().unwrap_or("POST"), path, body);
    if let Some(content_type) = step["content_type"].as_str() {
        request = request.header("Content-Type", content_type);
    }
    for (name, value) in step["headers"].as_object().into_iter().flatten() {
        request = request.header(name, value.as_str().unwrap_or_default());
    }
    StepAnswer::of("raw_http", wire::send(to, &request).await, wechat_accepted, ["ack", "nack"])
}

/// How an endless body is announced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length,
    Chunks,
}

/// Writes zeros until the server answers or closes; the verdict is `nack` (an answer) or `no_answer` (closed).
async fn endless(to: SocketAddr, path: &str, bytes: u64, framing: Framing) -> StepAnswer {
    let started = Instant::now();
    let outcome = tokio::time::timeout(ENDLESS_WAIT, write_zeros(to, path, bytes, framing)).await;
    let mut answer = match outcome {
        Ok(Ok((status, written))) if status > 0 => {
            let verdict = if wechat_accepted(status, b"") { "ack" } else { "nack" };
            StepAnswer { status, ..StepAnswer::words("raw_http", verdict, &format!("after {written} bytes")) }
        }
        Ok(Ok((_, written))) => StepAnswer::words("raw_http", "no_answer", &format!("closed after {written} bytes")),
        Ok(Err(e)) => StepAnswer::words("raw_http", "no_answer", &e.to_string()),
        Err(_) => StepAnswer::words("raw_http", "ack", "the server read on and on"),
    };
    answer.after_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    answer
}

async fn write_zeros(to: SocketAddr, path: &str, bytes: u64, framing: Framing) -> std::io::Result<(u16, u64)> {
    let mut socket = TcpStream::connect(to).await?;
    let length = match framing {
        Framing::Chunks => "Transfer-Encoding: chunked".to_owned(),
        Framing::Length => format!("Content-Length: {bytes}"),
    };
    let head = format!("POST {path} HTTP/1.1\r\nHost: ledger.example.test\r\nConnection: close\r\n{length}\r\n\r\n");
    socket.write_all(head.as_bytes()).await?;
    let (mut reader, mut writer) = socket.split();
    let mut written = 0_u64;
    let mut block = vec![0_u8; BLOCK_BYTES];
    if framing == Framing::Chunks {
        block = [format!("{BLOCK_BYTES:x}\r\n").as_bytes(), &block, b"\r\n"].concat();
    }
    let mut answer = Vec::new();
    loop {
        tokio::select! {
            biased;
            read = reader.read_buf(&mut answer) => {
                let read = read.unwrap_or(0);
                let status = std::str::from_utf8(&answer).ok().and_then(|text| text.get(9..12)?.parse().ok());
                if status.is_some() || read == 0 {
                    return Ok((status.unwrap_or(0), written));
                }
            }
            wrote = writer.write_all(&block), if written < bytes => match wrote {
                Ok(()) => written += u64::try_from(BLOCK_BYTES).unwrap_or(0),
                // The answer may still be readable.
                Err(_) => written = bytes,
            },
        }
    }
}
