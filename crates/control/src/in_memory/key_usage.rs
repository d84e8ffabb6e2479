//! When API keys were last used. A reconciler stores it from time to time, so that no call writes.

use std::collections::HashMap;

use parking_lot::Mutex;
use tarn_model::Time;
use tarn_model::ids::ApiKeyId;

/// How many keys are recorded between two writes. Only keys that exist are recorded.
const MAX_KEYS: usize = 100_000;

/// The uses that are not stored yet.
#[derive(Default)]
pub(crate) struct KeyUsage(Mutex<HashMap<ApiKeyId, Time>>);

impl KeyUsage {
    /// Records a use.
    pub(crate) fn record(&self, key: &ApiKeyId, at: Time) {
        let mut uses = self.0.lock();
        if let Some(last) = uses.get_mut(key) {
            *last = at.max(*last);
        } else if uses.len() < MAX_KEYS {
            uses.insert(key.clone(), at);
        }
    }

    /// Returns the last use that is not stored yet.
    pub(crate) fn last_use(&self, key: &ApiKeyId) -> Option<Time> {
        self.0.lock().get(key).copied()
    }

    /// Takes some uses, to store them.
    pub(crate) fn take(&self, limit: usize) -> Vec<(ApiKeyId, Time)> {
        let mut uses = self.0.lock();
        let keys: Vec<ApiKeyId> = uses.keys().take(limit).cloned().collect();
        keys.into_iter().filter_map(|key| uses.remove_entry(&key)).collect()
    }
}
