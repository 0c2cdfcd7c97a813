//! An address that stays while the server behind it dies and comes back on another port: what platforms send callbacks to.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpStream};

/// A forwarder. Stops with its runtime.
#[derive(Debug, Clone)]
pub struct Forward {
    addr: SocketAddr,
    target: Arc<Mutex<SocketAddr>>,
}

impl Forward {
    /// Listens on a free port and forwards to `target`.
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port for the forwarder");
        let addr = listener.local_addr().expect("the forwarder's address");
        let target = Arc::new(Mutex::new(target));
        let for_loop = Arc::clone(&target);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let target = *for_loop.lock().expect("the target");
                tokio::spawn(forward(socket, target));
            }
        });
        Self { addr, target }
    }

    /// `http://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Forwards new connections to another server.
    pub fn point_at(&self, target: SocketAddr) {
        *self.target.lock().expect("the target") = target;
    }
}

/// A server that is away closes the connection, as it would without a forwarder.
async fn forward(mut socket: TcpStream, target: SocketAddr) {
    if let Ok(mut server) = TcpStream::connect(target).await {
        drop(tokio::io::copy_bidirectional(&mut socket, &mut server).await);
    }
}
