//! Listeners that a client starts on the target.

use std::collections::HashMap;
use std::sync::Arc;

use russh::server::Handle;
use tarn_link::opening::Opened;
use tarn_link::{Endpoint, FromGuest, Purpose, Reply};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use super::channel_buffer::ChannelBuffers;
use super::forwards::{self, Origin};
use super::relay::{self, LinkStream};
use crate::Target;

/// The maximum number of listeners on one connection.
const MAX_LISTENERS: usize = 64;

/// The listeners of one client; all of them end when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    tasks: JoinSet<()>,
    by_endpoint: HashMap<ListenRequest, oneshot::Sender<()>>,
}

/// A listener as the client requested it; the client cancels it with the same values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ListenRequest {
    Tcp { address: String, port: u16 },
    Unix { path: String },
}

impl Listeners {
    /// Starts a listener and returns its port, which the target chooses if the request has port 0. The error is for a
    /// log.
    pub(crate) async fn start_listener(
        &mut self,
        request: ListenRequest,
        handle: Handle,
        target: Arc<dyn Target>,
        buffers: Arc<ChannelBuffers>,
        permits: Arc<Semaphore>,
    ) -> Result<u16, String> {
        self.by_endpoint.retain(|_, listener| !listener.is_closed());
        while self.tasks.try_join_next().is_some() {}
        if self.by_endpoint.len() >= MAX_LISTENERS || self.by_endpoint.contains_key(&request) {
            return Err("the listener exists already, or there are too many listeners".into());
        }
        let endpoint = match request.clone() {
            ListenRequest::Tcp { address, port } => Endpoint::Tcp { host: address, port },
            ListenRequest::Unix { path } => Endpoint::Unix { path },
        };
        let (answer, stream) = relay::open_link(&*target, Purpose::Listen(endpoint)).await?;
        let Reply::Listening(endpoint) = answer else {
            return Err("the instance did not report where it listens".into());
        };
        let (request, port) = match (request, endpoint) {
            (ListenRequest::Tcp { address, .. }, Endpoint::Tcp { port, .. }) => {
                (ListenRequest::Tcp { address, port }, port)
            }
            (request, _) => (request, 0),
        };
        let listener = Listener { request: request.clone(), handle, target, buffers, permits };
        let (stop, stopped) = oneshot::channel();
        self.tasks.spawn(listener.announce_connections(stream, stopped));
        self.by_endpoint.insert(request, stop);
        Ok(port)
    }

    /// Stops a listener; its connections stay open.
    pub(crate) fn stop_listener(&mut self, request: &ListenRequest) -> bool {
        self.by_endpoint.remove(request).is_some_and(|stop| stop.send(()).is_ok())
    }
}

struct Listener {
    request: ListenRequest,
    handle: Handle,
    target: Arc<dyn Target>,
    buffers: Arc<ChannelBuffers>,
    permits: Arc<Semaphore>,
}

impl Listener {
    async fn announce_connections(self, (mut reader, writer): Opened<LinkStream>, mut stopped: oneshot::Receiver<()>) {
        let mut connections = JoinSet::new();
        loop {
            let announced = tokio::select! {
                announced = reader.read_message() => announced,
                _ = &mut stopped => break,
            };
            let Ok(Some(FromGuest::Incoming { id, from })) = announced else { break };
            while connections.try_join_next().is_some() {}
            // A connection above the limit is not taken over, and the target closes it.
            let Ok(permit) = self.permits.clone().try_acquire_owned() else { continue };
            let take = forwards::accept_announced(
                self.handle.clone(),
                self.target.clone(),
                self.buffers.clone(),
                id,
                self.connection_origin(from),
            );
            connections.spawn(async move {
                take.await;
                drop(permit);
            });
        }
        // The target listens for as long as the stream is open.
        drop((reader, writer, stopped));
        while connections.join_next().await.is_some() {}
    }

    fn connection_origin(&self, from: Endpoint) -> Origin {
        match &self.request {
            ListenRequest::Unix { path } => Origin::Unix { path: path.clone() },
            ListenRequest::Tcp { address, port } => Origin::Tcp {
                address: address.clone(),
                port: *port,
                from: match from {
                    Endpoint::Tcp { host, port } => (host, port),
                    Endpoint::Unix { .. } | Endpoint::Agent => (String::new(), 0),
                },
            },
        }
    }
}
