//! Forwarded connections: those that the client opens into the target, and those that the target announces.

use std::sync::Arc;

use russh::server::{ChannelOpenHandle, Handle, Msg};
use russh::{Channel, ChannelOpenFailure};
use tarn_link::{Endpoint, Purpose};

use super::channel_buffer::ChannelBuffers;
use super::relay::{self, OpenChannel};
use crate::Target;

/// The maximum number of concurrent connections to the client's agent in one session.
pub(crate) const MAX_AGENT_CONNECTIONS: usize = 16;

/// Connects from inside the target, and replies to the client when the result is known.
pub(crate) async fn connect_from_target(
    channel: Channel<Msg>,
    reply: ChannelOpenHandle,
    handle: Handle,
    target: Arc<dyn Target>,
    buffers: Arc<ChannelBuffers>,
    to: Endpoint,
) {
    // The read half is unused: the handler receives all data.
    let (_, output) = channel.split();
    match relay::open_link(&*target, Purpose::Connect(to)).await {
        Ok((_, stream)) => {
            let channel = OpenChannel::new(handle, output, buffers);
            reply.accept().await;
            relay::relay_connection(channel, stream).await;
        }
        Err(reason) => {
            let code = ChannelOpenFailure::ConnectFailed.code();
            reply.reject(ChannelOpenFailure::Other { code, reason }).await;
        }
    }
}

/// Where an announced connection arrived, which determines the channel that is opened to the client.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// A port that the client asked for; `from` is the peer's host and port.
    Tcp { address: String, port: u16, from: (String, u16) },
    /// A Unix socket that the client asked for.
    Unix { path: String },
    /// The agent socket of a session.
    Agent,
}

/// Opens a channel to the client for a connection that the target has announced, and relays it.
pub(crate) async fn accept_announced(
    handle: Handle,
    target: Arc<dyn Target>,
    buffers: Arc<ChannelBuffers>,
    id: u64,
    origin: Origin,
) {
    let channel = match origin {
        Origin::Tcp { address, port, from } => {
            handle.channel_open_forwarded_tcpip(address, port.into(), from.0, from.1.into()).await
        }
        Origin::Unix { path } => handle.channel_open_forwarded_streamlocal(path).await,
        Origin::Agent => handle.channel_open_agent().await,
    };
    // If the client refuses, the target closes the announced connection after a timeout.
    let Ok(channel) = channel else { return };
    let (_, output) = channel.split();
    let channel = OpenChannel::new(handle, output, buffers);
    match relay::open_link(&*target, Purpose::Take { id }).await {
        Ok((_, stream)) => relay::relay_connection(channel, stream).await,
        Err(_) => {
            let _ = channel.handle.close(channel.id()).await;
        }
    }
}
