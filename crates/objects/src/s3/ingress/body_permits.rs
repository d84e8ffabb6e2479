//! Turns: how many calls may bring a body at the same time. Each holds some memory, so the others wait, with their bodies unread
//! on the way. An organization can take only a part of the turns: the rest stays with the others. What a call does is not known
//! here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tarn_model::ids::OrgId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many turns there are.
const ALL: usize = 256;

/// How many of them an organization may have.
const EACH: usize = 64;

pub(in crate::s3) struct Turns {
    all: Arc<Semaphore>,
    each: usize,
    of: Mutex<HashMap<OrgId, Arc<Semaphore>>>,
}

/// A turn, which ends when the last clone is dropped.
#[derive(Clone)]
pub(in crate::s3) struct Turn {
    _permits: Arc<[OwnedSemaphorePermit; 2]>,
}

impl Turns {
    pub(in crate::s3) fn new() -> Self {
        Self::with(ALL, EACH)
    }

    fn with(all: usize, each: usize) -> Self {
        Turns { all: Arc::new(Semaphore::new(all)), each, of: Mutex::default() }
    }

    /// Waits for a turn.
    pub(in crate::s3) async fn take(&self, org: &OrgId) -> Turn {
        // In this order whoever waits for the own organization keeps nothing from others.
        let own = self.of(org).acquire_owned().await.expect("nobody closes the semaphore");
        let all = self.all.clone().acquire_owned().await.expect("nobody closes the semaphore");
        Turn { _permits: Arc::new([own, all]) }
    }

    fn of(&self, org: &OrgId) -> Arc<Semaphore> {
        let mut known = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turns) = known.get(org) {
            return turns.clone();
        }
        // Those whom nobody uses are forgotten when another comes, so that there are never many.
        known.retain(|_, turns| Arc::strong_count(turns) > 1);
        known.entry(org.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.each))).clone()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn org(number: u32) -> OrgId {
        format!("o-{number:012}").parse().unwrap()
    }

    #[tokio::test]
    async fn an_organization_cannot_take_all() {
        let turns = Turns::with(3, 2);
        let first = turns.take(&org(1)).await;
        let second = turns.take(&org(1)).await;
        assert!(turns.take(&org(1)).now_or_never().is_none(), "it has all that it may have");
        let other = turns.take(&org(2)).now_or_never().expect("there is one for the others");
        assert!(turns.take(&org(3)).now_or_never().is_none(), "and no more");
        drop((first.clone(), second));
        let again = turns.take(&org(1)).now_or_never().expect("one has ended");
        drop(first);
        turns.take(&org(3)).now_or_never().expect("so has another");
        drop((other, again));
        turns.take(&org(4)).await;
        assert_eq!(turns.of.lock().unwrap().len(), 1, "who is idle is forgotten");
    }
}
