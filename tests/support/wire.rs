//! An HTTP/1.1 client over bare sockets: it can also do what a well-behaved client never does (chunk byte by byte, send
//! trailers, stop in the middle, write header names in any case).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest wait for an answer. The server promises one within 5 s; the rest is a loaded machine.
const ANSWER_WAIT: Duration = Duration::from_secs(20);

/// One request.
#[derive(Debug, Clone)]
pub struct Request {
    /// `POST`, ...
    pub method: String,
    /// Path and query.
    pub path: String,
    /// As they are written, in order. `Host`, `Connection` and the length are added.
    pub headers: Vec<(String, String)>,
    /// Exact bytes.
    pub body: Vec<u8>,
    /// How the body goes over the wire.
    pub transfer: Transfer,
    /// Close the socket this long after sending, without reading an answer.
    pub close_after: Option<Duration>,
}

/// How a body goes over the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transfer {
    /// `Content-Length`, one write.
    Plain,
    /// `Content-Length`, two writes with a pause between.
    Split {
        /// Bytes of the first write.
        at: usize,
        /// Pause.
        pause: Duration,
    },
    /// `Expect: 100-continue`: the body follows after the interim answer.
    Expect,
    /// Chunks.
    Chunked {
        /// Bytes of a chunk.
        size: usize,
        /// Text behind the `;` of each chunk size.
        extension: Option<String>,
        /// A trailer field.
        trailer: Option<(String, String)>,
        /// Also a `Content-Length` header (what a request smuggler sends).
        also_content_length: bool,
    },
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// Bytes.
    pub body: Vec<u8>,
    /// From the first byte sent to the last byte received.
    pub after: Duration,
}

/// Why there is no answer: the connection was refused, reset or closed, or nothing came in time.
#[derive(Debug, Clone)]
pub struct NoAnswer {
    /// In words.
    pub reason: String,
    /// From the first byte sent.
    pub after: Duration,
}

/// An answer, or why there is none.
pub type Reply = Result<Answer, NoAnswer>;

impl Request {
    /// A POST of these bytes.
    #[must_use]
    pub fn post(path: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self::new("POST", path, body)
    }

    /// A GET.
    #[must_use]
    pub fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path, Vec::new())
    }

    /// Any method.
    #[must_use]
    pub fn new(method: &str, path: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self {
            method: method.to_owned(),
            path: path.into(),
            headers: Vec::new(),
            body: body.into(),
            transfer: Transfer::Plain,
            close_after: None,
        }
    }

    /// The same with one more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with another body.
    #[must_use]
    pub fn with_body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    /// The same with these headers too.
    #[must_use]
    pub fn headers(mut self, headers: Vec<(String, String)>) -> Self {
        self.headers.extend(headers);
        self
    }

    fn head(&self) -> Vec<u8> {
        let mut head =
            format!("{} {} HTTP/1.1\r\nHost: ledger.example.test\r\nConnection: close\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let length = format!("Content-Length: {}\r\n", self.body.len());
        match &self.transfer {
            Transfer::Plain if self.method == "GET" => {}
            Transfer::Plain | Transfer::Split { .. } => head.push_str(&length),
            Transfer::Expect => head.push_str(&format!("{length}Expect: 100-continue\r\n")),
            Transfer::Chunked { also_content_length, .. } => {
                head.push_str("Transfer-Encoding: chunked\r\n");
                if *also_content_length {
                    head.push_str(&length);
                }
            }
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    fn chunks(&self, size: usize, extension: Option<&str>, trailer: Option<&(String, String)>) -> Vec<u8> {
        let extension = extension.map(|text| format!(";{text}")).unwrap_or_default();
        let mut bytes = Vec::new();
        for chunk in self.body.chunks(size.max(1)) {
            bytes.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n");
        if let Some((name, value)) = trailer {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes
    }
}

impl Answer {
    /// The first header of that name (lower case).
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("the body is not JSON ({e}), status {}: {}", self.status, self.text()))
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Sends one request on a connection of its own and reads the whole answer.
pub async fn send(to: SocketAddr, request: &Request) -> Reply {
    let started = Instant::now();
    let outcome = tokio::time::timeout(ANSWER_WAIT, exchange(to, request)).await;
    let after = started.elapsed();
    match outcome {
        Ok(Ok((status, headers, body))) => Ok(Answer { status, headers, body, after }),
        Ok(Err(e)) => Err(NoAnswer { reason: e.to_string(), after }),
        Err(_) => Err(NoAnswer { reason: format!("no answer within {ANSWER_WAIT:?}"), after }),
    }
}

type Parts = (u16, Vec<(String, String)>, Vec<u8>);

async fn exchange(to: SocketAddr, request: &Request) -> std::io::Result<Parts> {
    let mut socket = TcpStream::connect(to).await?;
    socket.set_nodelay(true)?;
    // An early refusal (413) may close the connection while we still write: then the answer counts, not our error.
    let written = write(&mut socket, request).await;
    if let Some(delay) = request.close_after {
        written?;
        tokio::time::sleep(delay).await;
        return Err(std::io::Error::other("closed by the sender, as asked"));
    }
    let mut bytes = Vec::new();
    let read = socket.read_to_end(&mut bytes).await;
    match parse(&bytes) {
        Some(parts) => Ok(parts),
        None => {
            written?;
            read?;
            Err(std::io::Error::other(format!("closed after {} bytes without an answer", bytes.len())))
        }
    }
}

async fn write(socket: &mut TcpStream, request: &Request) -> std::io::Result<()> {
    let head = request.head();
    match &request.transfer {
        Transfer::Plain => socket.write_all(&[head.as_slice(), &request.body].concat()).await,
        Transfer::Split { at, pause } => {
            let at = (*at).min(request.body.len());
            socket.write_all(&[head.as_slice(), &request.body[..at]].concat()).await?;
            socket.flush().await?;
            tokio::time::sleep(*pause).await;
            socket.write_all(&request.body[at..]).await
        }
        Transfer::Expect => {
            socket.write_all(&head).await?;
            let mut interim = [0_u8; 25];
            tokio::time::timeout(ANSWER_WAIT, socket.read_exact(&mut interim)).await??;
            if !interim.starts_with(b"HTTP/1.1 100") {
                return Err(std::io::Error::other("no interim answer to Expect: 100-continue"));
            }
            socket.write_all(&request.body).await
        }
        Transfer::Chunked { size, extension, trailer, .. } => {
            socket.write_all(&head).await?;
            socket.write_all(&request.chunks(*size, extension.as_deref(), trailer.as_ref())).await
        }
    }
}

/// Whether these bytes begin an answer with a status 2xx.
#[must_use]
pub fn starts_with_success(bytes: &[u8]) -> bool {
    bytes.strip_prefix(b"HTTP/1.1 ").is_some_and(|rest| rest.starts_with(b"2"))
}

/// Reads a complete answer; `None` when the bytes are not one.
fn parse(bytes: &[u8]) -> Option<Parts> {
    let end = find(bytes, b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status: u16 = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let rest = &bytes[end + 4..];
    if status == 100 {
        return parse(rest);
    }
    let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value.contains("chunked"));
    let body = if chunked { unchunk(rest)? } else { rest.to_vec() };
    Some((status, headers, body))
}

fn unchunk(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_end = find(bytes, b"\r\n")?;
        let size_text = std::str::from_utf8(&bytes[..line_end]).ok()?;
        let size = usize::from_str_radix(size_text.split(';').next()?.trim(), 16).ok()?;
        bytes = bytes.get(line_end + 2..)?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(bytes.get(..size)?);
        bytes = bytes.get(size + 2..)?;
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
