//! Permits for calls with a body. Each such call holds some memory, so only a limited number run at the same time, and
//! the others wait with their bodies unread. An organization gets only a part of the permits, so that some are left for
//! the others. Nothing here knows operations.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tarn_model::ids::OrgId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The number of permits.
const MAX_PERMITS: usize = 256;

/// The maximum number of permits of one organization.
const MAX_PERMITS_PER_ORGANIZATION: usize = 64;

pub(in crate::s3) struct BodyPermits {
    all: Arc<Semaphore>,
    per_organization: usize,
    by_organization: Mutex<HashMap<OrgId, Arc<Semaphore>>>,
}

/// A permit, which is released when the last clone is dropped.
#[derive(Clone)]
pub(in crate::s3) struct BodyPermit {
    _permits: Arc<[OwnedSemaphorePermit; 2]>,
}

impl BodyPermits {
    pub(in crate::s3) fn new() -> Self {
        Self::with_limits(MAX_PERMITS, MAX_PERMITS_PER_ORGANIZATION)
    }

    fn with_limits(all: usize, per_organization: usize) -> Self {
        BodyPermits { all: Arc::new(Semaphore::new(all)), per_organization, by_organization: Mutex::default() }
    }

    /// Waits for a permit.
    pub(in crate::s3) async fn acquire_permit(&self, org: &OrgId) -> BodyPermit {
        // In this order a call that waits for its own organization holds no permit that others could use.
        let own = self.organization_semaphore(org).acquire_owned().await.expect("the semaphore is never closed");
        let all = self.all.clone().acquire_owned().await.expect("the semaphore is never closed");
        BodyPermit { _permits: Arc::new([own, all]) }
    }

    fn organization_semaphore(&self, org: &OrgId) -> Arc<Semaphore> {
        let mut known = self.by_organization.lock();
        if let Some(permits) = known.get(org) {
            return permits.clone();
        }
        // Unused semaphores are removed when another organization is added, so that there are never many.
        known.retain(|_, permits| Arc::strong_count(permits) > 1);
        known.entry(org.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.per_organization))).clone()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn org(number: u32) -> OrgId {
        format!("o-{number:012}").parse().unwrap()
    }

    /// An organization cannot take all permits.
    #[tokio::test]
    async fn organization_cannot_take_all_permits() {
        let permits = BodyPermits::with_limits(3, 2);
        let first = permits.acquire_permit(&org(1)).await;
        let second = permits.acquire_permit(&org(1)).await;
        assert!(permits.acquire_permit(&org(1)).now_or_never().is_none(), "the organization has its maximum");
        let other = permits.acquire_permit(&org(2)).now_or_never().expect("a permit is left for others");
        assert!(permits.acquire_permit(&org(3)).now_or_never().is_none(), "all permits are in use");
        drop((first.clone(), second));
        let again = permits.acquire_permit(&org(1)).now_or_never().expect("one was released");
        drop(first);
        permits.acquire_permit(&org(3)).now_or_never().expect("another was released");
        drop((other, again));
        permits.acquire_permit(&org(4)).await;
        assert_eq!(permits.by_organization.lock().len(), 1, "idle organizations are removed");
    }
}
