//! Listeners inside the instance for a client outside.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tarn_link::{Endpoint, Error, FromGuest, Reader, Reply, Result, Stream, Writer};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Guest, send_refusal};
use crate::process::user_sockets;

/// Ports below this one are reserved.
const FIRST_PORT: u16 = 1024;

enum Listener {
    /// Loopback only, as OpenSSH does by default: a forwarded port is for the instance, not for other instances.
    Tcp(TcpListener, Option<TcpListener>),
    Unix(UnixListener),
}

/// Listens until the stream ends.
pub(super) async fn serve_listen<S: Stream>(
    guest: &Arc<Guest>,
    endpoint: Endpoint,
    mut reader: Reader<ReadHalf<S>>,
    mut writer: Writer<WriteHalf<S>>,
) -> Result<()> {
    let (listener, here) = match open_listener(guest, &endpoint).await {
        Ok(opened) => opened,
        Err(e) => return send_refusal(&mut writer, format!("the guest cannot listen there: {e}")).await,
    };
    let result = announce_connections(guest, &listener, &here, &mut reader, &mut writer).await;
    if let Endpoint::Unix { path } = here {
        // The user may have removed it, or put another file there; the helper removes only sockets.
        drop(listener);
        let _ = user_sockets::open_as_user(guest, user_sockets::Action::Remove, &path).await;
    }
    result
}

async fn announce_connections<S: Stream>(
    guest: &Arc<Guest>,
    listener: &Listener,
    here: &Endpoint,
    reader: &mut Reader<ReadHalf<S>>,
    writer: &mut Writer<WriteHalf<S>>,
) -> Result<()> {
    writer.message(&Reply::Listening(here.clone())).await?;
    let permits = Arc::new(Semaphore::new(MAX_PENDING_PER_LISTENER));
    loop {
        // A connection is accepted only when a permit is free; until then it waits in the kernel's backlog.
        let accepted = async {
            let permit = permits.clone().acquire_owned().await.expect("the semaphore is never closed");
            Ok::<_, io::Error>((permit, accept_connection(listener, here).await?))
        };
        tokio::select! {
            frame = reader.read() => return match frame? {
                None => Ok(()),
                Some(_) => Err(Error::Protocol("a frame arrived on the stream of a listener".into())),
            },
            accepted = accepted => match accepted {
                Ok((permit, (stream, from))) => {
                    if let Some(id) = guest.pending_connections.offer_connection(permit, stream) {
                        writer.message(&FromGuest::Incoming { id, from }).await?;
                    }
                }
                // Descriptors or memory have run out: others must end first.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
        }
    }
}

async fn open_listener(guest: &Guest, endpoint: &Endpoint) -> io::Result<(Listener, Endpoint)> {
    match endpoint {
        Endpoint::Tcp { host, port } => {
            if (1..FIRST_PORT).contains(port) {
                return Err(io::Error::other(format!("ports below {FIRST_PORT} are not allowed")));
            }
            let first = TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).await?;
            let port = first.local_addr()?.port();
            // An instance may have no IPv6, or the port may be taken there.
            let second = TcpListener::bind((Ipv6Addr::LOCALHOST, port)).await.ok();
            Ok((Listener::Tcp(first, second), Endpoint::Tcp { host: host.clone(), port }))
        }
        Endpoint::Unix { path } => {
            let socket = user_sockets::open_as_user(guest, user_sockets::Action::Listen, path).await?;
            let listener = UnixListener::from_std(std::os::unix::net::UnixListener::from(socket))?;
            Ok((Listener::Unix(listener), endpoint.clone()))
        }
        Endpoint::Agent => Err(io::Error::other("an agent socket can only be opened by a session")),
    }
}

async fn accept_connection(listener: &Listener, here: &Endpoint) -> io::Result<(Box<dyn Stream>, Endpoint)> {
    let (stream, from) = match listener {
        Listener::Unix(listener) => return Ok((Box::new(listener.accept().await?.0), here.clone())),
        Listener::Tcp(first, None) => first.accept().await?,
        Listener::Tcp(first, Some(second)) => tokio::select! {
            accepted = first.accept() => accepted?,
            accepted = second.accept() => accepted?,
        },
    };
    stream.set_nodelay(true)?;
    Ok((Box::new(stream), Endpoint::Tcp { host: from.ip().to_string(), port: from.port() }))
}

/// How many connections of one listener may be pending.
pub(crate) const MAX_PENDING_PER_LISTENER: usize = 32;

/// How many may be pending in total.
const MAX_PENDING: usize = 512;

/// How long a connection may be pending.
const PENDING_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections that were announced and that the engine has not taken over yet.
#[derive(Default)]
pub(crate) struct PendingConnections(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    last: u64,
    connections: HashMap<u64, (Box<dyn Stream>, OwnedSemaphorePermit)>,
}

impl fmt::Debug for PendingConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingConnections").finish_non_exhaustive()
    }
}

impl PendingConnections {
    /// Keeps a connection and its permit until it is taken over or times out; `None` if too many are pending, and the
    /// connection is closed.
    pub(crate) fn offer_connection(
        self: &Arc<Self>,
        permit: OwnedSemaphorePermit,
        stream: Box<dyn Stream>,
    ) -> Option<u64> {
        let mut waiting = self.0.lock();
        if waiting.connections.len() >= MAX_PENDING {
            return None;
        }
        waiting.last += 1;
        let id = waiting.last;
        waiting.connections.insert(id, (stream, permit));
        let this = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(PENDING_TIMEOUT).await;
            drop(this.take_connection(id));
        });
        Some(id)
    }

    /// Takes a connection over.
    pub(crate) fn take_connection(&self, id: u64) -> Option<Box<dyn Stream>> {
        let mut waiting = self.0.lock();
        waiting.connections.remove(&id).map(|(stream, _)| stream)
    }
}
