//! What a client lets the machine listen on.

use std::collections::HashMap;
use std::sync::Arc;

use russh::server::Handle;
use tarn_link::opening::Opened;
use tarn_link::{Answer, Endpoint, FromGuest, Purpose};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::Target;
use crate::forwards::{self, Origin};
use crate::inbox::Inboxes;
use crate::relay::{self, LinkStream};

/// Listeners at a time on one connection.
const MAX_LISTENERS: usize = 64;

/// What the machine listens on for one client; all of it ends with this.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    tasks: JoinSet<()>,
    by_endpoint: HashMap<Asked, oneshot::Sender<()>>,
}

/// What a client has asked for, in its words: the same words cancel it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asked {
    Tcp { address: String, port: u16 },
    Unix { path: String },
}

impl Listeners {
    /// Listens. The port is the one that was chosen, where that was left open; the error is for a log.
    pub(crate) async fn add(
        &mut self,
        asked: Asked,
        handle: Handle,
        machine: Arc<dyn Target>,
        inboxes: Arc<Inboxes>,
        slots: Arc<Semaphore>,
    ) -> Result<u16, String> {
        self.by_endpoint.retain(|_, listener| !listener.is_closed());
        while self.tasks.try_join_next().is_some() {}
        if self.by_endpoint.len() >= MAX_LISTENERS || self.by_endpoint.contains_key(&asked) {
            return Err("there is such a listener already, or there are too many".into());
        }
        let endpoint = match asked.clone() {
            Asked::Tcp { address, port } => Endpoint::Tcp { host: address, port },
            Asked::Unix { path } => Endpoint::Unix { path },
        };
        let (answer, stream) = relay::open(&*machine, Purpose::Listen(endpoint)).await?;
        let Answer::Listening(endpoint) = answer else { return Err("the machine did not say where it listens".into()) };
        let (asked, port) = match (asked, endpoint) {
            (Asked::Tcp { address, .. }, Endpoint::Tcp { port, .. }) => (Asked::Tcp { address, port }, port),
            (asked, _) => (asked, 0),
        };
        let listener = Listener { asked: asked.clone(), handle, machine, inboxes, slots };
        let (stop, stopped) = oneshot::channel();
        self.tasks.spawn(listener.run(stream, stopped));
        self.by_endpoint.insert(asked, stop);
        Ok(port)
    }

    /// Stops listening; whoever is connected stays so.
    pub(crate) fn remove(&mut self, asked: &Asked) -> bool {
        self.by_endpoint.remove(asked).is_some_and(|stop| stop.send(()).is_ok())
    }
}

struct Listener {
    asked: Asked,
    handle: Handle,
    machine: Arc<dyn Target>,
    inboxes: Arc<Inboxes>,
    slots: Arc<Semaphore>,
}

impl Listener {
    async fn run(self, (mut reader, writer): Opened<LinkStream>, mut stopped: oneshot::Receiver<()>) {
        let mut connections = JoinSet::new();
        loop {
            let announced = tokio::select! {
                announced = reader.read_message() => announced,
                _ = &mut stopped => break,
            };
            let Ok(Some(FromGuest::Incoming { id, from })) = announced else { break };
            while connections.try_join_next().is_some() {}
            // One connection too many is left untaken, and the machine gives it up.
            let Ok(slot) = self.slots.clone().try_acquire_owned() else { continue };
            let take =
                forwards::take(self.handle.clone(), self.machine.clone(), self.inboxes.clone(), id, self.origin(from));
            connections.spawn(async move {
                take.await;
                drop(slot);
            });
        }
        // The machine listens for as long as the stream is open.
        drop((reader, writer, stopped));
        while connections.join_next().await.is_some() {}
    }

    fn origin(&self, from: Endpoint) -> Origin {
        match &self.asked {
            Asked::Unix { path } => Origin::Unix { path: path.clone() },
            Asked::Tcp { address, port } => Origin::Tcp {
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
