//! Permits that keys share: there is a total, and no key (an organization, a user, an address) has more than its share,
//! so that none can take what all others need.
//!
//! The share of the key is acquired before the total: a caller that waits for its own key holds nothing that others
//! want. Callers are served in the order of their arrival. A caller that stops waiting leaves nothing behind, and a key
//! without permits is forgotten.

mod grouped;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

pub use grouped::{GroupedPermit, GroupedShare, GroupedUsedUp};

/// A number of permits of which each key may have a share.
#[derive(Debug)]
pub struct FairShare<K: Eq + Hash>(Arc<Pool<K>>);

#[derive(Debug)]
struct Pool<K: Eq + Hash> {
    total: Semaphore,
    share: u32,
    keys: Mutex<HashMap<K, Weak<Share<K>>>>,
}

/// The share of one key, which exists while the key has permits or waits for some.
#[derive(Debug)]
struct Share<K: Eq + Hash> {
    key: K,
    own: Semaphore,
    pool: Arc<Pool<K>>,
}

/// A number of permits of one key, released on drop.
#[derive(Debug)]
#[must_use = "the permits are released on drop"]
pub struct Permit<K: Eq + Hash> {
    share: Arc<Share<K>>,
    count: usize,
}

/// Why there is no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsedUp {
    /// The key has its whole share.
    Share,
    /// All keys together have the total.
    Total,
}

impl<K: Clone + Eq + Hash> FairShare<K> {
    /// Creates a number of permits, of which one key may have at most `share`.
    pub fn new(total: usize, share: usize) -> Self {
        let share = u32::try_from(share.min(total)).unwrap_or(u32::MAX);
        FairShare(Arc::new(Pool { total: Semaphore::new(total), share, keys: Mutex::default() }))
    }

    /// Waits for a number of permits. More than the share is the whole share, so that no caller waits for ever.
    pub async fn acquire(&self, key: &K, count: usize) -> Permit<K> {
        let (share, count) = self.share_of(key, count);
        let own = share.own.acquire_many(count).await.expect("the semaphore is never closed");
        let total = share.pool.total.acquire_many(count).await.expect("the semaphore is never closed");
        own.forget();
        total.forget();
        Permit { share, count: count as usize }
    }

    /// Returns a number of permits if they are free; more than the share is the whole share.
    pub fn try_acquire(&self, key: &K, count: usize) -> Result<Permit<K>, UsedUp> {
        let (share, count) = self.share_of(key, count);
        let own = share.own.try_acquire_many(count).map_err(|_| UsedUp::Share)?;
        let total = share.pool.total.try_acquire_many(count).map_err(|_| UsedUp::Total)?;
        own.forget();
        total.forget();
        Ok(Permit { share, count: count as usize })
    }

    /// Returns the share of a key, and how many permits of it are acquired.
    fn share_of(&self, key: &K, count: usize) -> (Arc<Share<K>>, u32) {
        let mut keys = self.0.keys.lock();
        let share = keys.get(key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let own = Semaphore::new(self.0.share as usize);
            let share = Arc::new(Share { key: key.clone(), own, pool: self.0.clone() });
            keys.insert(key.clone(), Arc::downgrade(&share));
            share
        });
        (share, u32::try_from(count).unwrap_or(u32::MAX).min(self.0.share))
    }
}

impl<K: Eq + Hash> Permit<K> {
    /// Adds the permits of another permit, which must have the same key.
    pub fn merge(&mut self, mut other: Permit<K>) {
        assert!(Arc::ptr_eq(&self.share, &other.share), "only permits of the same key are merged");
        self.count += std::mem::take(&mut other.count);
    }

    /// Splits off a number of permits; `None` if there are fewer.
    pub fn split(&mut self, count: usize) -> Option<Permit<K>> {
        self.count = self.count.checked_sub(count)?;
        Some(Permit { share: self.share.clone(), count })
    }
}

impl<K: Eq + Hash> Drop for Permit<K> {
    fn drop(&mut self) {
        self.share.own.add_permits(self.count);
        self.share.pool.total.add_permits(self.count);
    }
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut keys = self.pool.keys.lock();
        // Meanwhile the key may have got a new share.
        if keys.get(&self.key).is_some_and(|share| share.strong_count() == 0) {
            keys.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests;
