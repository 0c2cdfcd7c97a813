//! A client that sends exactly the bytes it is told, because framing is part of what is tested.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An answer, as it came.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.text()))
    }

    /// Checks the problem document and gives it.
    pub fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.text());
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status, "{problem}");
        assert_eq!(problem["type"], format!("/docs#{code}"), "{problem}");
        for member in ["title", "detail", "next", "request_id"] {
            assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "{member} in {problem}");
        }
        assert_eq!(self.header("x-request-id"), problem["request_id"].as_str());
        problem
    }
}

/// Sends raw bytes and reads one answer.
pub async fn exchange(address: SocketAddr, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    read_answer(&mut stream).await
}

/// Reads until the server closes, or until Content-Length bytes of the body are there.
pub async fn read_answer(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        if let Some(answer) = parse(&bytes) {
            return answer;
        }
        let read = stream.read(&mut buffer).await.unwrap();
        assert_ne!(read, 0, "the connection ended within the answer {:?}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&buffer[..read]);
    }
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let bytes = bytes.strip_prefix(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(bytes);
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).unwrap();
    let mut lines = head.split("\r\n");
    let status: u16 = lines.next()?.split(' ').nth(1)?.parse().unwrap();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
    let body = bytes.get(end + 4..end + 4 + length)?.to_vec();
    Some(Answer { status, headers, body })
}

/// The bytes of a plain request.
pub fn request(method: &str, path: &str, headers: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: ledger.test\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}
