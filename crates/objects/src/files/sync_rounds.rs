//! One call for many: whoever comes while a round runs waits for the next one, which serves all who came until it began.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(super) struct Rounds {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    begun: u64,
    /// The last round that went well.
    done: u64,
    running: bool,
    /// How many rounds have failed, and how the last of them did.
    failures: u64,
    failure: Option<(io::ErrorKind, String)>,
}

/// How many rounds had failed when something was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Since(u64);

impl Rounds {
    /// To be asked before a change is made that is to be covered.
    pub(super) fn since(&self) -> Since {
        Since(self.lock().failures)
    }

    /// Returns when a round that began after this call has gone well. A round that fails is an error to everybody whose
    /// change was made before its end: the kernel tells a failure once, and a later round that goes well says nothing of what
    /// was lost in this one.
    pub(super) fn covered(&self, since: Since, run: impl Fn() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.lock();
        let wanted = state.begun + 1;
        loop {
            state.check(since)?;
            if state.done >= wanted {
                return Ok(());
            }
            if !state.running {
                break;
            }
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.begun += 1;
        state.running = true;
        let round = state.begun;
        drop(state);
        let result = run();
        let mut state = self.lock();
        state.running = false;
        match &result {
            Ok(()) => state.done = round,
            Err(error) => {
                state.failures += 1;
                state.failure = Some((error.kind(), error.to_string()));
            }
        }
        self.ended.notify_all();
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn check(&self, since: Since) -> io::Result<()> {
        match &self.failure {
            Some((kind, reason)) if self.failures > since.0 => Err(io::Error::new(*kind, reason.clone())),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A change counts as covered only when a round began after it was made.
    #[test]
    fn no_change_is_left_out() {
        let (rounds, made, covered, runs) =
            (Rounds::default(), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let since = rounds.since();
                        let mine = made.fetch_add(1, Ordering::SeqCst) + 1;
                        let run = || {
                            let seen = made.load(Ordering::SeqCst);
                            runs.fetch_add(1, Ordering::SeqCst);
                            std::thread::yield_now();
                            covered.fetch_max(seen, Ordering::SeqCst);
                            Ok(())
                        };
                        rounds.covered(since, run).unwrap();
                        assert!(covered.load(Ordering::SeqCst) >= mine);
                    }
                });
            }
        });
        assert!(runs.load(Ordering::SeqCst) <= 4000);
    }

    #[test]
    fn a_failure_is_told_to_all_whose_change_was_made_before_its_end() {
        let (rounds, full) = (Rounds::default(), io::ErrorKind::StorageFull);
        let before = rounds.since();
        let begun = Barrier::new(2);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                begun.wait();
                rounds.covered(before, || Ok(()))
            });
            let failed = rounds.covered(before, || {
                begun.wait();
                Err(full.into())
            });
            assert_eq!(failed.unwrap_err().kind(), full);
            // Whether it waited for the round or came after it, a round of its own would have told it nothing.
            assert_eq!(waiting.join().unwrap().unwrap_err().kind(), full);
        });
        rounds.covered(rounds.since(), || Ok(())).unwrap();
    }
}
