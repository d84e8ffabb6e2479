//! One call for many: whoever comes while a round runs waits for the next one, which serves all who came until it began.

use std::io;
use std::sync::{Condvar, Mutex, PoisonError};

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
}

impl Rounds {
    /// Returns when a round that began after this call has gone well. A round that fails is an error to the one who ran it;
    /// those who waited for it run one of their own.
    pub(super) fn covered(&self, run: impl Fn() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = state.begun + 1;
        while state.running {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
            if state.done >= wanted {
                return Ok(());
            }
        }
        state.begun += 1;
        state.running = true;
        let round = state.begun;
        drop(state);
        let result = run();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.running = false;
        if result.is_ok() {
            state.done = round;
        }
        self.ended.notify_all();
        result
    }
}

#[cfg(test)]
mod tests {
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
                        let mine = made.fetch_add(1, Ordering::SeqCst) + 1;
                        let run = || {
                            let seen = made.load(Ordering::SeqCst);
                            runs.fetch_add(1, Ordering::SeqCst);
                            std::thread::yield_now();
                            covered.fetch_max(seen, Ordering::SeqCst);
                            Ok(())
                        };
                        rounds.covered(run).unwrap();
                        assert!(covered.load(Ordering::SeqCst) >= mine);
                    }
                });
            }
        });
        assert!(runs.load(Ordering::SeqCst) <= 4000);
    }

    #[test]
    fn a_failure_is_told_to_the_one_who_ran() {
        let rounds = Rounds::default();
        let failed = rounds.covered(|| Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        rounds.covered(|| Ok(())).unwrap();
    }
}
