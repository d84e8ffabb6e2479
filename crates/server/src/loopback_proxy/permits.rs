//! How many connections may be open through one proxy of one instance, and through all proxies together.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits of one proxy alone, whatever other instances do.
const OWN: usize = 8;

/// Further permits of one proxy, as long as shared permits are left. A guest can serve all of these for several proxies
/// and has streams left for SSH.
const MORE: usize = 120;

/// Permits that all proxies of all instances share.
pub(super) const SHARED: usize = 1024;

/// The permits of one proxy.
#[derive(Debug)]
pub(super) struct ConnectionPermits {
    own: Arc<Semaphore>,
    more: Arc<Semaphore>,
    shared: Arc<Semaphore>,
}

/// The permit of one connection, released on drop.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    _own_or_more: OwnedSemaphorePermit,
    _shared: Option<OwnedSemaphorePermit>,
}

impl ConnectionPermits {
    pub(super) fn new(shared: Arc<Semaphore>) -> Self {
        ConnectionPermits { own: Arc::new(Semaphore::new(OWN)), more: Arc::new(Semaphore::new(MORE)), shared }
    }

    /// Waits for a permit: one of its own if there is one, otherwise a shared one.
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

    /// An instance with many connections leaves other instances their own permits.
    #[test]
    fn greedy_instance_leaves_permits() {
        let shared = Arc::new(Semaphore::new(MORE));
        let (greedy, modest) = (ConnectionPermits::new(shared.clone()), ConnectionPermits::new(shared));
        let mut taken: Vec<ConnectionPermit> = std::iter::from_fn(|| greedy.acquire_permit().now_or_never()).collect();
        assert_eq!(taken.len(), OWN + MORE, "one proxy has only so many");
        let kept: Vec<ConnectionPermit> = std::iter::from_fn(|| modest.acquire_permit().now_or_never()).collect();
        assert_eq!(kept.len(), OWN, "the other has its own permits although no shared ones are left");
        taken.pop();
        assert!(modest.acquire_permit().now_or_never().is_some(), "a released shared permit is available to all");
    }
}
