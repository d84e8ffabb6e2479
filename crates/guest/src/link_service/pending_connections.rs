//! Connections that were announced and that the engine has not taken over yet.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tarn_link::Stream;
use tokio::sync::OwnedSemaphorePermit;

/// How many connections of one listener may be pending.
pub(crate) const MAX_PENDING_PER_LISTENER: usize = 32;

/// How many may be pending in total.
const MAX_PENDING: usize = 512;

/// How long a connection may be pending.
const PENDING_TIMEOUT: Duration = Duration::from_secs(10);

/// All pending connections.
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
