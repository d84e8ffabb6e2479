//! Bounds the number of open WebSockets, which the limit of connections no longer counts after the upgrade.
//! Unauthenticated sockets have their own permits, so that they cannot take those of users, and no user can take all.

use std::sync::Arc;

use axum::http::StatusCode;
use tarn_base::fair_share::{FairShare, Permit, UsedUp};
use tarn_model::ids::UserId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::output::failure::Failure;

/// The permits of all WebSockets.
pub(crate) struct SocketLimits {
    unauthenticated: Arc<Semaphore>,
    /// For sockets that push jobs; each may send the names of a million files.
    pub(in crate::http::jobs) pushes: UserPermits,
    /// For sockets that listen to jobs, and for calls that wait for a log.
    pub(in crate::http::jobs) listeners: UserPermits,
    /// How many lists of files are matched at the same time: one of each organization, or of a user without one.
    pub(in crate::http::jobs) matching: FairShare<String>,
}

impl Default for SocketLimits {
    fn default() -> Self {
        SocketLimits {
            unauthenticated: Arc::new(Semaphore::new(1024)),
            pushes: UserPermits::new("pushes", 256, 8),
            listeners: UserPermits::new("listeners", 8192, 2048),
            matching: FairShare::new(2, 1),
        }
    }
}

impl SocketLimits {
    /// Acquires a permit for a socket that is not authenticated yet.
    pub(in crate::http::jobs) fn acquire_unauthenticated(&self) -> Result<OwnedSemaphorePermit, Failure> {
        self.unauthenticated.clone().try_acquire_owned().map_err(|_| no_permit_left())
    }
}

/// Permits of one kind, for authenticated users.
pub(in crate::http::jobs) struct UserPermits {
    what: &'static str,
    per_user: usize,
    permits: FairShare<UserId>,
}

impl UserPermits {
    fn new(what: &'static str, all: usize, per_user: usize) -> Self {
        UserPermits { what, per_user, permits: FairShare::new(all, per_user) }
    }

    /// Acquires a permit for this user.
    pub(in crate::http::jobs) fn acquire(&self, user: &UserId) -> Result<Permit<UserId>, Failure> {
        self.permits.try_acquire(user, 1).map_err(|used_up| match used_up {
            UsedUp::Share => {
                let message =
                    format!("you have {} {} at the same time, which is the limit; end some", self.per_user, self.what);
                Failure::new(StatusCode::TOO_MANY_REQUESTS, "too_many_sockets", message)
            }
            UsedUp::Total => no_permit_left(),
        })
    }
}

fn no_permit_left() -> Failure {
    let message = "too many WebSockets are open; try again in a moment";
    Failure { retry_after: Some(1), ..Failure::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No user can take all permits, and every permit is released.
    #[test]
    fn user_cannot_take_all_permits() {
        let permits = UserPermits::new("talks", 3, 2);
        let (one, other): (UserId, UserId) = ("u-000000000001".parse().unwrap(), "u-000000000002".parse().unwrap());
        let code = |user| permits.acquire(user).err().map(|failure| failure.code);
        let first = permits.acquire(&one).unwrap();
        let second = permits.acquire(&one).unwrap();
        assert_eq!(code(&one), Some("too_many_sockets"));
        let third = permits.acquire(&other).unwrap();
        assert_eq!(code(&other), Some("unavailable"));
        drop(first);
        drop(permits.acquire(&one).unwrap());
        drop((second, third));
        assert!([&one, &one, &other].map(|user| permits.acquire(user)).iter().all(Result::is_ok));
    }

    /// Unauthenticated sockets do not take the permits of users.
    #[test]
    fn unauthenticated_sockets_have_own_permits() {
        let (sockets, user) = (SocketLimits::default(), "u-000000000001".parse().unwrap());
        let unauthenticated: Vec<_> = std::iter::from_fn(|| sockets.acquire_unauthenticated().ok()).collect();
        assert_eq!(unauthenticated.len(), 1024);
        assert!(sockets.pushes.acquire(&user).is_ok() && sockets.listeners.acquire(&user).is_ok());
        drop(unauthenticated);
        assert!(sockets.acquire_unauthenticated().is_ok());
    }
}
