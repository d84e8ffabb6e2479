//! How far steps are that take long and tell it, in their own words. It is kept where the step runs; what others have to know
//! of it is written down by the step itself.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tarn_model::ids::RequestId;
use tokio::sync::watch;

/// Longer words are cut: they become part of answers and rows.
const MAX_WORDS: usize = 400;

/// What this process is told.
#[derive(Default)]
pub(crate) struct Progress(Mutex<Known>);

#[derive(Default)]
struct Known {
    under_way: HashMap<RequestId, Told>,
    changes: u64,
}

struct Told {
    words: watch::Sender<String>,
    /// How often it was told something.
    times: u64,
}

/// A step that tells how far it is. When it is dropped, nothing is known any more.
pub(crate) struct Teller<'p> {
    progress: &'p Progress,
    request: RequestId,
    words: watch::Receiver<String>,
}

impl Progress {
    /// A step begins to tell.
    pub(crate) fn begin(&self, request: &RequestId) -> Teller<'_> {
        let (sender, words) = watch::channel(String::new());
        self.known().under_way.insert(request.clone(), Told { words: sender, times: 0 });
        Teller { progress: self, request: request.clone(), words }
    }

    /// What the step of a request told last.
    pub(crate) fn of(&self, request: &RequestId) -> Option<String> {
        let known = self.known();
        let words = known.under_way.get(request)?.words.borrow().clone();
        Some(words).filter(|words| !words.is_empty())
    }

    /// How often the step of a request has told something.
    pub(crate) fn told(&self, request: &RequestId) -> u64 {
        self.known().under_way.get(request).map_or(0, |told| told.times)
    }

    /// How many steps tell how far they are.
    pub(crate) fn under_way(&self) -> usize {
        self.known().under_way.len()
    }

    /// Counts how often something else was told, by whomever.
    pub(crate) fn changes(&self) -> u64 {
        self.known().changes
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Teller<'_> {
    /// Tells how far it is. The same again is no news to anybody.
    pub(crate) fn tell(&self, words: &str) {
        let words: String = words.chars().filter(|c| !c.is_control()).take(MAX_WORDS).collect();
        let mut known = self.progress.known();
        let Some(told) = known.under_way.get_mut(&self.request) else { return };
        if told.words.send_if_modified(|before| std::mem::replace(before, words.clone()) != words) {
            told.times += 1;
            known.changes += 1;
        }
    }

    /// Follows what is told.
    pub(crate) fn follow(&self) -> watch::Receiver<String> {
        self.words.clone()
    }
}

impl Drop for Teller<'_> {
    fn drop(&mut self) {
        let mut known = self.progress.known();
        known.under_way.remove(&self.request);
        known.changes += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_known_until_the_end() {
        let (progress, request) = (Progress::default(), "r-000000000001".parse().unwrap());
        assert_eq!((progress.of(&request), progress.told(&request)), (None, 0));
        let teller = progress.begin(&request);
        assert_eq!(progress.of(&request), None, "nothing was told");
        teller.tell("half");
        let changes = progress.changes();
        teller.tell("half");
        assert_eq!((progress.told(&request), progress.changes()), (1, changes), "that is no news");
        teller.tell(&"long\n".repeat(1000));
        assert_eq!(progress.of(&request).unwrap().len(), MAX_WORDS);
        assert_eq!((progress.told(&request), progress.under_way()), (2, 1));
        drop(teller);
        assert_eq!((progress.of(&request), progress.under_way()), (None, 0));
        assert!(progress.changes() > changes);
    }
}
