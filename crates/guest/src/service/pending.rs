//! Connections that were announced and wait to be taken.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tarn_link::Stream;
use tokio::sync::OwnedSemaphorePermit;

/// How many connections of one listener may wait.
pub(crate) const MAX_WAITING: usize = 32;

/// How many may wait altogether.
const MAX_ALL: usize = 512;

/// How long one waits.
const WAITING_TIME: Duration = Duration::from_secs(10);

/// All that wait.
#[derive(Default)]
pub(crate) struct Pending(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    last: u64,
    connections: HashMap<u64, (Box<dyn Stream>, OwnedSemaphorePermit)>,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

impl Pending {
    /// Keeps a connection in its place until it is taken, or for a while; `None` if too many wait altogether, and the connection
    /// is closed.
    pub(crate) fn offer(self: &Arc<Self>, place: OwnedSemaphorePermit, stream: Box<dyn Stream>) -> Option<u64> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.connections.len() >= MAX_ALL {
            return None;
        }
        waiting.last += 1;
        let id = waiting.last;
        waiting.connections.insert(id, (stream, place));
        let this = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(WAITING_TIME).await;
            drop(this.take(id));
        });
        Some(id)
    }

    /// Takes a connection.
    pub(crate) fn take(&self, id: u64) -> Option<Box<dyn Stream>> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.connections.remove(&id).map(|(stream, _)| stream)
    }
}
