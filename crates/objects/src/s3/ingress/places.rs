//! Limits the calls in progress of each user and of each organization, from whatever addresses, so that none can take
//! all connections with slow calls.

use s3s::{S3Error, S3Result, s3_error};
use tarn_base::fair_share::{FairShare, Permit};
use tarn_model::ids::{OrgId, UserId};
use tarn_store::s3_keys::KeyHolder;
use tokio::sync::Semaphore;

const CALLS_PER_USER: usize = 1024;

/// Half of the connections of a listener.
const CALLS_PER_ORGANIZATION: usize = 2048;

/// The places of all calls in progress.
pub(in crate::s3) struct Places {
    users: FairShare<UserId>,
    organizations: FairShare<OrgId>,
}

/// The place of one call, until it is dropped. The legacy key of an organization has no user.
#[derive(Debug)]
pub(in crate::s3) struct Place {
    _user: Option<Permit<UserId>>,
    _organization: Permit<OrgId>,
}

impl Default for Places {
    fn default() -> Self {
        Places::new(CALLS_PER_USER, CALLS_PER_ORGANIZATION)
    }
}

impl Places {
    fn new(per_user: usize, per_organization: usize) -> Places {
        // The number of all connections is limited by the server.
        let all = Semaphore::MAX_PERMITS;
        Places { users: FairShare::new(all, per_user), organizations: FairShare::new(all, per_organization) }
    }

    /// Returns a place for a call that the holder of a key has signed.
    pub(in crate::s3) fn acquire(&self, holder: &KeyHolder) -> S3Result<Place> {
        let user = holder.user.as_ref().map(|user| self.users.try_acquire(user, 1)).transpose();
        let user = user.map_err(|_| slow_down("You have"))?;
        let organization = self.organizations.try_acquire(&holder.org, 1);
        let organization = organization.map_err(|_| slow_down("Your organization has"))?;
        Ok(Place { _user: user, _organization: organization })
    }
}

fn slow_down(who: &str) -> S3Error {
    s3_error!(SlowDown, "{who} too many calls in progress. Reduce your request rate.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(user: Option<&str>, org: &str) -> KeyHolder {
        KeyHolder { org: org.parse().unwrap(), user: user.map(|user| user.parse().unwrap()), ends: None }
    }

    /// Neither a user nor an organization has more calls in progress than its share, and every place is released.
    #[test]
    fn calls_in_progress_are_limited() {
        let places = Places::new(2, 3);
        let [one, other] = ["u-000000000001", "u-000000000002"].map(|user| holder(Some(user), "o-000000000001"));
        let code = |holder: &KeyHolder| places.acquire(holder).err().map(|error| error.code().as_str().to_owned());
        let held = [&one, &one].map(|holder| places.acquire(holder).unwrap());
        assert_eq!(code(&one).as_deref(), Some("SlowDown"));
        let third = places.acquire(&other).unwrap();
        assert_eq!(code(&other).as_deref(), Some("SlowDown"), "the organization has its share");
        assert_eq!(code(&holder(None, "o-000000000001")).as_deref(), Some("SlowDown"), "a legacy key counts as well");
        assert_eq!(code(&holder(Some("u-000000000003"), "o-000000000002")), None);
        drop((held, third));
        assert_eq!((code(&one), code(&other)), (None, None));
    }
}
