//! Limits the calls in progress of each user and of each organization, from whatever addresses, so that none can take
//! all connections with slow calls.

use s3s::{S3Result, s3_error};
use tarn_base::fair_share::{GroupedPermit, GroupedShare, GroupedUsedUp};
use tarn_model::ids::{OrgId, UserId};
use tarn_store::s3_keys::KeyHolder;
use tokio::sync::Semaphore;

const CALLS_PER_USER: usize = 1024;

/// Half of the connections of a listener.
const CALLS_PER_ORGANIZATION: usize = 2048;

/// The permits of all calls in progress.
pub(in crate::s3) struct CallPermits(GroupedShare<UserId, OrgId>);

/// The permit of one call, until it is dropped. The legacy key of an organization has no user.
pub(in crate::s3) type CallPermit = GroupedPermit<UserId, OrgId>;

impl Default for CallPermits {
    fn default() -> Self {
        // The number of all connections is limited by the server.
        CallPermits(GroupedShare::new(Semaphore::MAX_PERMITS, CALLS_PER_USER, CALLS_PER_ORGANIZATION))
    }
}

impl CallPermits {
    /// Returns a permit for a call that the holder of a key has signed.
    pub(in crate::s3) fn acquire(&self, holder: &KeyHolder) -> S3Result<CallPermit> {
        self.0.try_acquire(holder.user.as_ref(), Some(&holder.org)).map_err(|used_up| {
            let subject = match used_up {
                GroupedUsedUp::Member => "You have",
                GroupedUsedUp::Group | GroupedUsedUp::Total => "Your organization has",
            };
            s3_error!(SlowDown, "{subject} too many calls in progress. Reduce your request rate.")
        })
    }
}
