//! Permits for uploads of job files: a limited number at the same time, and a lower limit for one owner. An upload that
//! waits too long is refused, because each waiting one uses memory and a connection.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Error, Kind, Result};

/// How many archives may arrive at the same time, and how many of one owner.
const MAX_UPLOADS: usize = 128;
const MAX_UPLOADS_PER_OWNER: usize = 16;

/// How long an upload waits for a permit.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(60);

/// The permits of all owners.
pub(crate) struct UploadPermits {
    all: Arc<Semaphore>,
    /// The owners that have permits or wait for one.
    owners: Mutex<HashMap<String, Weak<Semaphore>>>,
    timeout: Duration,
}

/// A permit for one upload. It is released on drop.
pub(crate) struct UploadPermit {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Default for UploadPermits {
    fn default() -> Self {
        UploadPermits { all: Arc::new(Semaphore::new(MAX_UPLOADS)), owners: Mutex::default(), timeout: ACQUIRE_TIMEOUT }
    }
}

impl UploadPermits {
    /// Waits for a permit of this owner, up to the timeout.
    pub(crate) async fn acquire(&self, owner: &str) -> Result<UploadPermit> {
        let own = self.owner_semaphore(owner);
        let permit = async {
            let own = own.acquire_owned().await.map_err(Error::internal)?;
            let all = self.all.clone().acquire_owned().await.map_err(Error::internal)?;
            Ok(UploadPermit { _own: own, _all: all })
        };
        let late = || {
            let message = "too many job uploads are in progress; try again in a minute";
            Err(Error::new(Kind::Unavailable, "too_many_uploads", message))
        };
        tokio::time::timeout(self.timeout, permit).await.unwrap_or_else(|_| late())
    }

    fn owner_semaphore(&self, owner: &str) -> Arc<Semaphore> {
        let mut owners = self.owners.lock();
        if let Some(own) = owners.get(owner).and_then(Weak::upgrade) {
            return own;
        }
        let own = Arc::new(Semaphore::new(MAX_UPLOADS_PER_OWNER));
        owners.retain(|_, own| own.strong_count() > 0);
        owners.insert(owner.to_owned(), Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An owner cannot take all permits, and an upload does not wait forever.
    #[tokio::test]
    async fn permits_are_limited_per_owner() {
        let permits = UploadPermits { timeout: Duration::from_millis(20), ..UploadPermits::default() };
        let mut held = Vec::new();
        for _ in 0..MAX_UPLOADS_PER_OWNER {
            held.push(permits.acquire("o-1").await.unwrap());
        }
        assert_eq!(permits.acquire("o-1").await.map(drop).unwrap_err().code, "too_many_uploads");
        held.push(permits.acquire("o-2").await.unwrap());
        held.remove(0);
        held.push(permits.acquire("o-1").await.unwrap());
        for owner in 3..10 {
            for _ in 0..MAX_UPLOADS_PER_OWNER {
                held.extend(permits.acquire(&format!("o-{owner}")).await);
            }
        }
        assert_eq!(held.len(), MAX_UPLOADS, "the total is limited");
        held.clear();
        permits.acquire("o-9").await.unwrap();
        assert_eq!(permits.owners.lock().len(), 1, "an owner without permits is removed");
    }
}
