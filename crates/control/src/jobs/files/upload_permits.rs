//! Whose turn it is to send the files of a job: so many come at the same time, and not too many of them from one owner. Whoever
//! waits too long is told to come back, because each of them needs memory and a connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Error, Kind, Result};

/// How many archives may come at the same time, and how many of one owner.
const ALL: usize = 128;
const OWN: usize = 16;

/// How long one waits for a turn.
const PATIENCE: Duration = Duration::from_secs(60);

/// The turns of all owners.
pub(crate) struct UploadTurns {
    all: Arc<Semaphore>,
    /// Those who have turns or wait for one.
    owners: Mutex<HashMap<String, Weak<Semaphore>>>,
    /// How long one waits for a turn.
    patience: Duration,
}

/// A turn. It ends when this is dropped.
pub(crate) struct Turn {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Default for UploadTurns {
    fn default() -> Self {
        UploadTurns { all: Arc::new(Semaphore::new(ALL)), owners: Mutex::default(), patience: PATIENCE }
    }
}

impl UploadTurns {
    /// Waits for a turn of this owner, but not for ever.
    pub(crate) async fn wait(&self, owner: &str) -> Result<Turn> {
        let own = self.of(owner);
        let turn = async {
            let own = own.acquire_owned().await.map_err(Error::internal)?;
            let all = self.all.clone().acquire_owned().await.map_err(Error::internal)?;
            Ok(Turn { _own: own, _all: all })
        };
        let late = || {
            let message = "too many files of jobs are being uploaded at this moment; try again in a minute";
            Err(Error::new(Kind::Unavailable, "too_many_uploads", message))
        };
        tokio::time::timeout(self.patience, turn).await.unwrap_or_else(|_| late())
    }

    fn of(&self, owner: &str) -> Arc<Semaphore> {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = owners.get(owner).and_then(Weak::upgrade) {
            return own;
        }
        let own = Arc::new(Semaphore::new(OWN));
        owners.retain(|_, own| own.strong_count() > 0);
        owners.insert(owner.to_owned(), Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_takes_all_turns_and_nobody_waits_for_ever() {
        let turns = UploadTurns { patience: Duration::from_millis(20), ..UploadTurns::default() };
        let mut held = Vec::new();
        for _ in 0..OWN {
            held.push(turns.wait("o-1").await.unwrap());
        }
        assert_eq!(turns.wait("o-1").await.map(drop).unwrap_err().code, "too_many_uploads");
        held.push(turns.wait("o-2").await.unwrap());
        held.remove(0);
        held.push(turns.wait("o-1").await.unwrap());
        for owner in 3..10 {
            for _ in 0..OWN {
                held.extend(turns.wait(&format!("o-{owner}")).await);
            }
        }
        assert_eq!(held.len(), ALL, "more than that come at no time");
        held.clear();
        turns.wait("o-9").await.unwrap();
        assert_eq!(turns.owners.lock().unwrap().len(), 1, "who has none is forgotten");
    }
}
