//! Which secrets were shown a moment ago. A read that shows a secret is recorded, but a loop of such reads must not
//! fill the event log, so the same is recorded once a minute.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tarn_model::Time;
use tarn_model::ids::ApiKeyId;

/// For how long the same is not recorded again.
const WINDOW: Duration = Duration::from_secs(60);

/// How many are remembered. Beyond that all are forgotten, and so recorded again.
const MAX_REMEMBERED: usize = 10_000;

/// The API key of a call, the verb of its event, and the object.
type Shown = (ApiKeyId, &'static str, String);

#[derive(Default)]
pub(crate) struct RecentShows(Mutex<HashMap<Shown, Time>>);

impl RecentShows {
    /// Returns whether this has to be recorded, and remembers it.
    pub(crate) fn is_due(&self, key: &ApiKeyId, verb: &'static str, object: &str, now: Time) -> bool {
        let mut recent = self.0.lock();
        let shown = (key.clone(), verb, object.to_owned());
        if recent.get(&shown).is_some_and(|at| *at > now.before(WINDOW)) {
            return false;
        }
        if recent.len() >= MAX_REMEMBERED {
            recent.retain(|_, at| *at > now.before(WINDOW));
        }
        if recent.len() >= MAX_REMEMBERED {
            recent.clear();
        }
        recent.insert(shown, now);
        true
    }
}
