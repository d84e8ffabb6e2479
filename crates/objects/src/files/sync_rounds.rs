//! Shared syncs: a caller that arrives during a round waits for the next one, which serves all callers that arrived
//! before it started.

use std::io;

use parking_lot::{Condvar, Mutex, MutexGuard};
#[derive(Default)]
pub(super) struct SyncRounds {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    begun: u64,
    /// The last successful round.
    done: u64,
    running: bool,
    /// The number of failed rounds, and the last error.
    failures: u64,
    failure: Option<(io::ErrorKind, String)>,
}

/// The number of failed rounds before a change was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FailureCount(u64);

impl SyncRounds {
    /// Returns the current number of failures. Must be called before the change that a round is to cover.
    pub(super) fn since(&self) -> FailureCount {
        FailureCount(self.lock().failures)
    }

    /// Waits until a round that started after this call succeeds. A round that fails is an error for every caller whose
    /// change was made before its end: the kernel reports a failure once, and a later successful round says nothing
    /// about what was lost in this one.
    pub(super) fn wait_for_round(&self, since: FailureCount, run: impl Fn() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.lock();
        let wanted = state.begun + 1;
        loop {
            state.check_failures(since)?;
            if state.done >= wanted {
                return Ok(());
            }
            if !state.running {
                break;
            }
            self.ended.wait(&mut state);
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
        self.state.lock()
    }
}

impl State {
    fn check_failures(&self, since: FailureCount) -> io::Result<()> {
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

    /// A change is covered only by a round that started after it.
    #[test]
    fn every_change_is_covered() {
        let (rounds, made, covered, runs) =
            (SyncRounds::default(), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
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
                        rounds.wait_for_round(since, run).unwrap();
                        assert!(covered.load(Ordering::SeqCst) >= mine);
                    }
                });
            }
        });
        assert!(runs.load(Ordering::SeqCst) <= 4000);
    }

    /// A failed round is an error for every change made before its end.
    #[test]
    fn failure_reaches_all_earlier_changes() {
        let (rounds, full) = (SyncRounds::default(), io::ErrorKind::StorageFull);
        let before = rounds.since();
        let begun = Barrier::new(2);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                begun.wait();
                rounds.wait_for_round(before, || Ok(()))
            });
            let failed = rounds.wait_for_round(before, || {
                begun.wait();
                Err(full.into())
            });
            assert_eq!(failed.unwrap_err().kind(), full);
            // Whether it waited for the round or came after it, a round of its own would have reported nothing.
            assert_eq!(waiting.join().unwrap().unwrap_err().kind(), full);
        });
        rounds.wait_for_round(rounds.since(), || Ok(())).unwrap();
    }
}
