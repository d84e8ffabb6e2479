//! How many connections may be open through one proxy of one instance, and through all proxies together.

use std::sync::Arc;

use tarn_base::fair_share::{FairShare, Permit};
use tarn_model::ids::InstanceId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits of one proxy alone, whatever other instances do.
const OWN: usize = 8;

/// Further permits of one proxy, as long as shared permits are left. A guest can serve all of these for several proxies
/// and has streams left for SSH.
const MORE: usize = 120;

/// Permits that all proxies of all instances share.
const SHARED: usize = 1024;

/// The permits that the proxies share, each known by its instance and port.
pub(super) type SharedPermits = FairShare<(InstanceId, u16)>;

/// Creates the permits that all proxies share.
pub(super) fn shared_permits() -> Arc<SharedPermits> {
    Arc::new(FairShare::new(SHARED, MORE))
}

/// The permits of one proxy.
#[derive(Debug)]
pub(super) struct ConnectionPermits {
    own: Arc<Semaphore>,
    shared: Arc<SharedPermits>,
    proxy: (InstanceId, u16),
}

/// The permit of one connection, released on drop.
#[derive(Debug)]
pub(super) enum ConnectionPermit {
    Own { _permit: OwnedSemaphorePermit },
    Shared { _permit: Permit<(InstanceId, u16)> },
}

impl ConnectionPermits {
    pub(super) fn new(shared: Arc<SharedPermits>, instance: &InstanceId, port: u16) -> Self {
        ConnectionPermits { own: Arc::new(Semaphore::new(OWN)), shared, proxy: (instance.clone(), port) }
    }

    /// Waits for a permit: one of its own if there is one, otherwise a shared one.
    pub(super) async fn acquire_permit(&self) -> ConnectionPermit {
        tokio::select! {
            biased;
            own = self.own.clone().acquire_owned() => {
                ConnectionPermit::Own { _permit: own.expect("the semaphore is never closed") }
            }
            shared = self.shared.acquire(&self.proxy, 1) => ConnectionPermit::Shared { _permit: shared },
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// An instance with many connections leaves other instances their own permits.
    #[test]
    fn greedy_instance_leaves_permits() {
        let shared = Arc::new(FairShare::new(MORE, MORE));
        let [greedy, modest] = ["i-000000000001", "i-000000000002"]
            .map(|instance| ConnectionPermits::new(shared.clone(), &instance.parse().unwrap(), 7070));
        let mut taken: Vec<ConnectionPermit> = std::iter::from_fn(|| greedy.acquire_permit().now_or_never()).collect();
        assert_eq!(taken.len(), OWN + MORE, "one proxy has only so many");
        let kept: Vec<ConnectionPermit> = std::iter::from_fn(|| modest.acquire_permit().now_or_never()).collect();
        assert_eq!(kept.len(), OWN, "the other has its own permits although no shared ones are left");
        taken.pop();
        assert!(modest.acquire_permit().now_or_never().is_some(), "a released shared permit is available to all");
    }
}
