//! Forwarded connections: those that the client opens into the machine, and those that the machine announces.

use std::sync::Arc;

use russh::server::{ChannelOpenHandle, Handle, Msg};
use russh::{Channel, ChannelOpenFailure};
use tarn_link::{Endpoint, Purpose};

use crate::Target;
use crate::inbox::Inboxes;
use crate::relay::{self, Line};

/// Connections to the client's agent at a time, in one session.
pub(crate) const MAX_AGENTS: usize = 16;

/// Connects from inside of the machine, and answers the client when it is known how that went.
pub(crate) async fn connect(
    channel: Channel<Msg>,
    reply: ChannelOpenHandle,
    handle: Handle,
    machine: Arc<dyn Target>,
    inboxes: Arc<Inboxes>,
    to: Endpoint,
) {
    // What is read from the channel itself is never used: the handler gets all data.
    let (_, output) = channel.split();
    match relay::open(&*machine, Purpose::Connect(to)).await {
        Ok((_, stream)) => {
            let line = Line::new(handle, output, inboxes);
            reply.accept().await;
            relay::relay(line, stream).await;
        }
        Err(reason) => {
            let code = ChannelOpenFailure::ConnectFailed.code();
            reply.reject(ChannelOpenFailure::Other { code, reason }).await;
        }
    }
}

/// Where a connection that the machine announces came in, and so what to tell the client.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// At a port that the client has asked for, from this host and port.
    Tcp { address: String, port: u16, from: (String, u16) },
    /// At a socket that the client has asked for.
    Unix { path: String },
    /// At the socket of the agent.
    Agent,
}

/// Opens a channel to the client for a connection that the machine has announced, and carries it.
pub(crate) async fn take(handle: Handle, machine: Arc<dyn Target>, inboxes: Arc<Inboxes>, id: u64, origin: Origin) {
    let channel = match origin {
        Origin::Tcp { address, port, from } => {
            handle.channel_open_forwarded_tcpip(address, port.into(), from.0, from.1.into()).await
        }
        Origin::Unix { path } => handle.channel_open_forwarded_streamlocal(path).await,
        Origin::Agent => handle.channel_open_agent().await,
    };
    // A client that refuses leaves the machine's connection untaken; the machine gives it up by itself.
    let Ok(channel) = channel else { return };
    let (_, output) = channel.split();
    let line = Line::new(handle, output, inboxes);
    match relay::open(&*machine, Purpose::Take { id }).await {
        Ok((_, stream)) => relay::relay(line, stream).await,
        Err(_) => {
            let _ = line.handle.close(line.id()).await;
        }
    }
}
