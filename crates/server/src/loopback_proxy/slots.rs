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

/// The slots of one door.
#[derive(Debug)]
pub(super) struct Slots {
    own: Arc<Semaphore>,
    more: Arc<Semaphore>,
    shared: Arc<Semaphore>,
}

/// The place of one connection; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    _own_or_more: OwnedSemaphorePermit,
    _shared: Option<OwnedSemaphorePermit>,
}

impl Slots {
    pub(super) fn new(shared: Arc<Semaphore>) -> Self {
        Slots { own: Arc::new(Semaphore::new(OWN)), more: Arc::new(Semaphore::new(MORE)), shared }
    }

    /// Waits for a slot: one of its own if there is one, else one that is shared.
    pub(super) async fn next(&self) -> Slot {
        let shared = async { (acquire(&self.more).await, acquire(&self.shared).await) };
        tokio::select! {
            biased;
            own = acquire(&self.own) => Slot { _own_or_more: own, _shared: None },
            (more, shared) = shared => Slot { _own_or_more: more, _shared: Some(shared) },
        }
    }
}

async fn acquire(semaphore: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    semaphore.clone().acquire_owned().await.expect("the semaphore is never closed")
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_greedy_instance_leaves_the_others_theirs() {
        let shared = Arc::new(Semaphore::new(MORE));
        let (greedy, modest) = (Slots::new(shared.clone()), Slots::new(shared));
        let mut taken: Vec<Slot> = std::iter::from_fn(|| greedy.next().now_or_never()).collect();
        assert_eq!(taken.len(), OWN + MORE, "one door has only so many");
        let kept: Vec<Slot> = std::iter::from_fn(|| modest.next().now_or_never()).collect();
        assert_eq!(kept.len(), OWN, "the other has its own although nothing is left that could be shared");
        taken.pop();
        assert!(modest.next().now_or_never().is_some(), "what is given back is for everybody");
    }
}
