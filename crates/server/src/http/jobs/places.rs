//! How many WebSockets there may be at once: once they are open, the limit of connections does not count them any more. Those
//! of whom nothing is known have places of their own, so that they cannot take those of others, and nobody takes them all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use tarn_model::ids::UserId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::failure::Failure;

/// The places among the sockets.
pub(crate) struct Sockets {
    strangers: Arc<Semaphore>,
    /// Those by which jobs are pushed; each may say the names of a million files.
    pub(super) pushes: Places,
    /// Those by which people listen.
    pub(super) listeners: Places,
    /// How many lists of files are looked at at the same time.
    pub(super) matching: Semaphore,
}

impl Default for Sockets {
    fn default() -> Self {
        Sockets {
            strangers: Arc::new(Semaphore::new(1024)),
            pushes: Places::new("pushes", 256, 8),
            listeners: Places::new("listeners", 8192, 2048),
            matching: Semaphore::new(2),
        }
    }
}

impl Sockets {
    /// A place for somebody who has not said who he is.
    pub(super) fn stranger(&self) -> Result<OwnedSemaphorePermit, Failure> {
        self.strangers.clone().try_acquire_owned().map_err(|_| full())
    }
}

/// Places of one kind, for those who are known.
pub(super) struct Places {
    what: &'static str,
    /// How many there are, and how many of them one user may have.
    all: usize,
    own: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    /// Only those who have some.
    users: HashMap<UserId, usize>,
}

impl Places {
    fn new(what: &'static str, all: usize, own: usize) -> Self {
        Places { what, all, own, taken: Mutex::default() }
    }

    /// A place for this user, or that there is none.
    pub(super) fn take(&self, user: &UserId) -> Result<Place<'_>, Failure> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.users.get(user).is_some_and(|own| *own >= self.own) {
            let message =
                format!("you have {} {} at the same time, and more are not allowed; end some", self.own, self.what);
            return Err(Failure::new(StatusCode::TOO_MANY_REQUESTS, "too_many_sockets", message));
        }
        if taken.all >= self.all {
            return Err(full());
        }
        taken.all += 1;
        *taken.users.entry(user.clone()).or_default() += 1;
        Ok(Place { places: self, user: user.clone() })
    }
}

/// A place among the sockets. It is free again when this is dropped.
pub(super) struct Place<'a> {
    places: &'a Places,
    user: UserId,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        let left = taken.users.get_mut(&self.user).map(|own| {
            *own -= 1;
            *own
        });
        if left == Some(0) {
            taken.users.remove(&self.user);
        }
    }
}

fn full() -> Failure {
    let message = "too many of these are open at the same time; try again in a moment";
    Failure { retry_after: Some(1), ..Failure::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_all_places_and_none_is_lost() {
        let places = Places::new("talks", 3, 2);
        let (one, other): (UserId, UserId) = ("u-000000000001".parse().unwrap(), "u-000000000002".parse().unwrap());
        let code = |user| places.take(user).err().map(|failure| failure.code);
        let first = places.take(&one).unwrap();
        let second = places.take(&one).unwrap();
        assert_eq!(code(&one), Some("too_many_sockets"));
        let third = places.take(&other).unwrap();
        assert_eq!(code(&other), Some("unavailable"));
        drop(first);
        drop(places.take(&one).unwrap());
        drop((second, third));
        let taken = places.taken.lock().unwrap();
        assert_eq!((taken.all, taken.users.len()), (0, 0), "who has none is forgotten");
    }

    #[test]
    fn strangers_take_nobodys_place_but_their_own() {
        let (sockets, user) = (Sockets::default(), "u-000000000001".parse().unwrap());
        let strangers: Vec<_> = std::iter::from_fn(|| sockets.stranger().ok()).collect();
        assert_eq!(strangers.len(), 1024);
        assert!(sockets.pushes.take(&user).is_ok() && sockets.listeners.take(&user).is_ok());
        drop(strangers);
        assert!(sockets.stranger().is_ok());
    }
}
