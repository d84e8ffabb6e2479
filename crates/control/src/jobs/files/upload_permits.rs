//! Permits for uploads of job files: a limited number at the same time, and a lower limit for one owner. An upload that
//! waits too long is refused, because each waiting one uses memory and a connection.

use std::time::Duration;

use tarn_base::fair_share::{FairShare, Permit};

use crate::{Error, Kind, Result};

/// How many archives may arrive at the same time, and how many of one owner.
const MAX_UPLOADS: usize = 128;
const MAX_UPLOADS_PER_OWNER: usize = 16;

/// How long an upload waits for a permit.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(60);

/// The permits of all owners.
pub(crate) struct UploadPermits(FairShare<String>);

impl Default for UploadPermits {
    fn default() -> Self {
        UploadPermits(FairShare::new(MAX_UPLOADS, MAX_UPLOADS_PER_OWNER))
    }
}

impl UploadPermits {
    /// Waits for a permit of this owner, up to the timeout.
    pub(crate) async fn acquire(&self, owner: &str) -> Result<Permit<String>> {
        let late = |_| {
            let message = "too many job uploads are in progress; try again in a minute";
            Error::new(Kind::Unavailable, "too_many_uploads", message)
        };
        tokio::time::timeout(ACQUIRE_TIMEOUT, self.0.acquire(&owner.to_owned(), 1)).await.map_err(late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An owner cannot take all permits, and an upload does not wait forever.
    #[tokio::test(start_paused = true)]
    async fn permits_are_limited_per_owner() {
        let permits = UploadPermits::default();
        let mut held = Vec::new();
        for _ in 0..MAX_UPLOADS_PER_OWNER {
            held.push(permits.acquire("o-1").await.unwrap());
        }
        assert_eq!(permits.acquire("o-1").await.map(drop).unwrap_err().code, "too_many_uploads");
        held.push(permits.acquire("o-2").await.unwrap());
        drop(held.remove(0));
        held.push(permits.acquire("o-1").await.unwrap());
        for owner in 3..10 {
            for _ in 0..MAX_UPLOADS_PER_OWNER {
                held.extend(permits.acquire(&format!("o-{owner}")).await);
            }
        }
        assert_eq!(held.len(), MAX_UPLOADS, "the total is limited");
    }
}
