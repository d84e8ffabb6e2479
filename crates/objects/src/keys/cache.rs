//! The cache of access keys, for engines that are alone on their database.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tarn_model::Time;
use tarn_store::s3_keys::KeyHolder;

/// How long an entry is used. Every change of keys and users clears the cache as soon as it is committed; this bounds
/// the delay should a caller disconnect in between.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

/// The maximum number of entries; beyond it the cache starts anew.
const MAX_ENTRIES: usize = 10_000;

/// The holders of access keys that were looked up recently.
#[derive(Default)]
pub(crate) struct AccessKeyCache(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    /// Grows with every change.
    epoch: u64,
    holders: HashMap<String, (KeyHolder, Time)>,
}

impl AccessKeyCache {
    pub(super) fn get(&self, access_key: &str, now: Time) -> Option<KeyHolder> {
        let entries = self.0.lock();
        let (holder, read) = entries.holders.get(access_key)?;
        // A clock that was set back must not prolong anything.
        (*read <= now && now < read.after(TRUSTED_FOR)).then(|| holder.clone())
    }

    pub(super) fn epoch(&self) -> u64 {
        self.0.lock().epoch
    }

    /// Adds a key that was read at `now`, unless keys have changed since its lookup started.
    pub(super) fn put(&self, access_key: &str, holder: &KeyHolder, now: Time, epoch: u64) {
        let mut entries = self.0.lock();
        if entries.epoch != epoch {
            return;
        }
        if entries.holders.len() >= MAX_ENTRIES {
            entries.holders.clear();
        }
        entries.holders.insert(access_key.to_owned(), (holder.clone(), now));
    }

    pub(super) fn clear(&self) {
        let mut entries = self.0.lock();
        entries.epoch += 1;
        entries.holders.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry is used for a second, and not after a change.
    #[test]
    fn entry_ends_with_time_or_change() {
        let (cache, start) = (AccessKeyCache::default(), Time::from_micros(5_000_000));
        let holder = KeyHolder { org: "o-000000000001".parse().unwrap(), user: None, ends: None };
        cache.put("A", &holder, start, cache.epoch());
        assert_eq!(cache.get("A", start.after(Duration::from_millis(999))).as_ref(), Some(&holder));
        assert_eq!(cache.get("A", start.after(TRUSTED_FOR)), None);
        assert_eq!(cache.get("A", start.before(Duration::from_micros(1))), None);
        let epoch = cache.epoch();
        cache.clear();
        assert_eq!(cache.get("A", start), None);
        cache.put("A", &holder, start, epoch);
        assert_eq!(cache.get("A", start), None, "it was read before the change");
    }
}
