//! HTTP as values: what goes out, without any server or client.

/// An answer to write.
#[derive(Debug, Clone)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// In order.
    pub headers: Vec<(&'static str, String)>,
    /// What becomes of it.
    pub ending: Ending,
    body: Vec<u8>,
}

/// What becomes of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It is sent.
    Sent,
    /// It is never sent.
    Never,
    /// It breaks off after its head.
    Broken,
}

impl Reply {
    /// An answer with a body.
    #[must_use]
    pub fn of(status: u16, media_type: &str, body: Vec<u8>) -> Self {
        Self { status, headers: vec![("Content-Type", media_type.to_owned())], ending: Ending::Sent, body }
    }

    /// None.
    #[must_use]
    pub fn never() -> Self {
        Self { ending: Ending::Never, ..Self::of(504, "text/plain", Vec::new()) }
    }

    /// One that breaks off.
    #[must_use]
    pub fn broken() -> Self {
        Self { ending: Ending::Broken, ..Self::of(200, "application/json", Vec::new()) }
    }

    /// What stands before a platform when it is away.
    #[must_use]
    pub fn bad_gateway() -> Self {
        Self::of(502, "text/html", b"<html><head><title>502 Bad Gateway</title></head><body></body></html>".to_vec())
    }

    /// Adds a header.
    pub fn header(&mut self, name: &'static str, value: String) {
        self.headers.push((name, value));
    }

    /// The exact body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Takes the body out.
    #[must_use]
    pub fn into_body(self) -> Vec<u8> {
        self.body
    }
}

/// A callback to send.
#[derive(Debug, Clone)]
pub struct Message {
    /// In order.
    pub headers: Vec<(&'static str, String)>,
    /// Exact bytes.
    pub body: Vec<u8>,
}
