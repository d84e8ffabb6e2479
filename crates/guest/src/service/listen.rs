//! Listening inside the instance for a client outside.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use tarn_link::{Answer, Endpoint, Error, FromGuest, Reader, Result, Stream, Writer};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

use super::pending::MAX_WAITING;
use super::{Guest, refuse};
use crate::sockets;

/// Ports below are the system's.
const FIRST_PORT: u16 = 1024;

/// What listens.
enum Listener {
    /// Loopback only, as OpenSSH does by default: a forwarded port is for the instance, not for its neighbours.
    Tcp(TcpListener, Option<TcpListener>),
    Unix(UnixListener),
}

/// Listens until the stream ends.
pub(super) async fn serve<S: Stream>(
    guest: &Arc<Guest>,
    endpoint: Endpoint,
    mut reader: Reader<ReadHalf<S>>,
    mut writer: Writer<WriteHalf<S>>,
) -> Result<()> {
    let (listener, here) = match open(guest, &endpoint).await {
        Ok(opened) => opened,
        Err(e) => return refuse(&mut writer, format!("it cannot listen there: {e}")).await,
    };
    let result = announce(guest, &listener, &here, &mut reader, &mut writer).await;
    if let Endpoint::Unix { path } = here {
        // The user may have removed it, or put something else there, which is his.
        drop(listener);
        let _ = sockets::as_user(guest, sockets::Action::Remove, &path).await;
    }
    result
}

async fn announce<S: Stream>(
    guest: &Arc<Guest>,
    listener: &Listener,
    here: &Endpoint,
    reader: &mut Reader<ReadHalf<S>>,
    writer: &mut Writer<WriteHalf<S>>,
) -> Result<()> {
    writer.message(&Answer::Listening(here.clone())).await?;
    let places = Arc::new(Semaphore::new(MAX_WAITING));
    loop {
        // Nobody is accepted before there is a place for him: a connection too many waits in the kernel's line.
        let accepted = async {
            let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
            Ok::<_, io::Error>((place, accept(listener, here).await?))
        };
        tokio::select! {
            frame = reader.read() => return match frame? {
                None => Ok(()),
                Some(_) => Err(Error::Protocol("a listener is told nothing".into())),
            },
            accepted = accepted => match accepted {
                Ok((place, (stream, from))) => {
                    if let Some(id) = guest.pending.offer(place, stream) {
                        writer.message(&FromGuest::Incoming { id, from }).await?;
                    }
                }
                // Descriptors or memory are short: others must end first.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
        }
    }
}

async fn open(guest: &Guest, endpoint: &Endpoint) -> io::Result<(Listener, Endpoint)> {
    match endpoint {
        Endpoint::Tcp { host, port } => {
            if (1..FIRST_PORT).contains(port) {
                return Err(io::Error::other(format!("ports below {FIRST_PORT} are not given out")));
            }
            let first = TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).await?;
            let port = first.local_addr()?.port();
            // An instance may have no IPv6, or somebody may have the port there.
            let second = TcpListener::bind((Ipv6Addr::LOCALHOST, port)).await.ok();
            Ok((Listener::Tcp(first, second), Endpoint::Tcp { host: host.clone(), port }))
        }
        Endpoint::Unix { path } => {
            let socket = sockets::as_user(guest, sockets::Action::Listen, path).await?;
            let listener = UnixListener::from_std(std::os::unix::net::UnixListener::from(socket))?;
            Ok((Listener::Unix(listener), endpoint.clone()))
        }
        Endpoint::Agent => Err(io::Error::other("an agent belongs to a session")),
    }
}

async fn accept(listener: &Listener, here: &Endpoint) -> io::Result<(Box<dyn Stream>, Endpoint)> {
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
