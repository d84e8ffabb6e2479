//! How many connections may be open through one door of one instance, and through all of them together.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So many belong to the door alone: whatever others do, it has these.
const OWN: usize = 8;

/// So many more it may have, as long as there are any that all doors share. A guest serves all of these for several doors,
/// and has streams left for people.
const MORE: usize = 120;

/// So many are shared by all doors of all instances.
pub(super) const SHARED: usize = 1024;

/// The permits of one door.
#[derive(Debug)]
pub(super) struct ConnectionPermits {
    own: Arc<Semaphore>,
    more: Arc<Semaphore>,
    shared: Arc<Semaphore>,
}

/// The place of one connection; free again when it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    _own_or_more: OwnedSemaphorePermit,
    _shared: Option<OwnedSemaphorePermit>,
}

impl ConnectionPermits {
    pub(super) fn new(shared: Arc<Semaphore>) -> Self {
        ConnectionPermits { own: Arc::new(Semaphore::new(OWN)), more: Arc::new(Semaphore::new(MORE)), shared }
    }

    /// Waits for a permit: one of its own if there is one, else one that is shared.
    pub(super) async fn acquire_permit(&self) -> ConnectionPermit {
        let shared = async { (acquire_owned(&self.more).await, acquire_owned(&self.shared).await) };
        tokio::select! {
            biased;
            own = acquire_owned(&self.own) => ConnectionPermit { _own_or_more: own, _shared: None },
            (more, shared) = shared => ConnectionPermit { _own_or_more: more, _shared: Some(shared) },
        }
    }
}

async fn acquire_owned(semaphore: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    semaphore.clone().acquire_owned().await.expect("the semaphore is never closed")
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_greedy_instance_leaves_the_others_theirs() {
        let shared = Arc::new(Semaphore::new(MORE));
        let (greedy, modest) = (ConnectionPermits::new(shared.clone()), ConnectionPermits::new(shared));
        let mut taken: Vec<ConnectionPermit> = std::iter::from_fn(|| greedy.acquire_permit().now_or_never()).collect();
        assert_eq!(taken.len(), OWN + MORE, "one door has only so many");
        let kept: Vec<ConnectionPermit> = std::iter::from_fn(|| modest.acquire_permit().now_or_never()).collect();
        assert_eq!(kept.len(), OWN, "the other has its own although nothing is left that could be shared");
        taken.pop();
        assert!(modest.acquire_permit().now_or_never().is_some(), "what is given back is for everybody");
    }
}
