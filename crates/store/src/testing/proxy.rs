//! A server that can hang: a proxy in front of the test server, which stops forwarding when a test says so. As with a
//! process that is stopped, connections stay open, new ones are accepted, and nothing comes back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::Fresh;
use crate::Database;

/// Which bytes the proxy keeps back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    Nothing,
    /// What the server receives is carried out, and its responses do not arrive.
    Responses,
    Everything,
}

/// A proxy in front of a database server. It ends with the runtime of the test.
pub struct Proxy {
    held: watch::Sender<Held>,
    open: Arc<AtomicUsize>,
}

impl Proxy {
    /// Puts a proxy in front of a database on a server. From now on the database has the address of the proxy.
    pub async fn before(fresh: &mut Fresh) -> Proxy {
        let Database::Postgres(url) = &fresh.database else { panic!("only a server can be behind a proxy") };
        let (_, rest) = url.split_once('@').expect("the address has a user");
        let (address, _) = rest.split_once('/').expect("the address has a database");
        let server: SocketAddr = address.parse().expect("the test server has an address and a port");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let own = listener.local_addr().expect("a port").to_string();
        fresh.database = Database::Postgres(url.replace(address, &own));
        let proxy = Proxy { held: watch::Sender::new(Held::Nothing), open: Arc::default() };
        let (held, open) = (proxy.held.clone(), proxy.open.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (held, open) = (held.subscribe(), open.clone());
                open.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    forward(client, server, held).await;
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        proxy
    }

    /// Changes what is kept back. What was kept back until now is forwarded, unless it is kept back further.
    pub fn hold(&self, held: Held) {
        self.held.send_replace(held);
    }

    /// Waits until this is kept back.
    pub async fn holds(&self, held: Held) {
        // The sender is in this value, so the channel cannot be closed.
        let _ = self.held.subscribe().wait_for(|now| *now == held).await;
    }

    /// How many connections clients have open.
    pub fn open_connections(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

/// Forwards in both directions until one of them ends.
async fn forward(client: TcpStream, server: SocketAddr, held: watch::Receiver<Held>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        () = pump(from_client, to_server, held.clone(), |held| held != Held::Everything) => {}
        () = pump(from_server, to_client, held, |held| held == Held::Nothing) => {}
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut held: watch::Receiver<Held>,
    passes: impl Fn(Held) -> bool,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if held.wait_for(|held| passes(*held)).await.is_err() || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
