//! Divides the time of matching between organizations: two matches run at the same time, one at a time for an
//! organization. A match that takes long lets others go first after each turn, so that a push with usual patterns waits
//! for a turn of those before it and not for their end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tarn_base::fair_share::FairShare;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;
use tokio::time::Instant;

/// How many matches run at the same time.
const MAX_RUNNING: usize = 2;

/// More than the pushes that may be open: only the share of each organization is a limit here.
const MAX_BEGUN: usize = 1 << 20;

/// How long a match runs while others wait.
const TURN: Duration = Duration::from_millis(500);

/// How long the names of one push may be matched, without the turns of others. The limits of a job file allow patterns
/// that would take longer; usual ones need a few seconds for a million files.
pub(super) const MATCH_TIMEOUT: Duration = Duration::from_secs(30);

/// The turns of all matches.
pub(in crate::http::jobs) struct MatchTurns {
    /// One match of each organization, or of a user without one, may have begun.
    begun: FairShare<String>,
    /// The matches that run. Waiting ones are served in the order in which they began to wait.
    running: Arc<Semaphore>,
}

impl Default for MatchTurns {
    fn default() -> Self {
        MatchTurns { begun: FairShare::new(MAX_BEGUN, 1), running: Arc::new(Semaphore::new(MAX_RUNNING)) }
    }
}

impl MatchTurns {
    /// Runs the work of a match on a blocking thread. The work is told to end when this future is dropped.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        scope: &str,
        work: impl FnOnce(&mut Turn) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let begun = self.begun.acquire(&scope.to_owned(), 1).await;
        let permit = acquire(self.running.clone()).await;
        let (mut turn, _cancel) = Turn::start(self.running.clone(), permit, MATCH_TIMEOUT);
        // The thread holds the permits: a push that ended must not make room for another before its thread has ended.
        let work = tokio::task::spawn_blocking(move || {
            let _begun = begun;
            work(&mut turn)
        });
        work.await
    }
}

async fn acquire(running: Arc<Semaphore>) -> OwnedSemaphorePermit {
    running.acquire_owned().await.expect("the semaphore is never closed")
}

/// The turn of a match, and when the match has to stop. A blocking thread cannot be aborted, and the engine waits for
/// it when it stops, so the thread calls [`Turn::check`] before each comparison.
pub(super) struct Turn {
    running: Arc<Semaphore>,
    /// Absent while others have their turn.
    permit: Option<OwnedSemaphorePermit>,
    ends: Instant,
    deadline: Instant,
    is_cancelled: Arc<AtomicBool>,
}

/// Cancels a match on drop: the push has ended, or the engine stops.
pub(super) struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Turn {
    fn start(running: Arc<Semaphore>, permit: OwnedSemaphorePermit, timeout: Duration) -> (Self, CancelOnDrop) {
        let (now, is_cancelled) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let (ends, deadline) = (now + TURN, now + timeout);
        let turn = Turn { running, permit: Some(permit), ends, deadline, is_cancelled: is_cancelled.clone() };
        (turn, CancelOnDrop(is_cancelled))
    }

    /// A turn that no one else wants.
    #[cfg(test)]
    pub(super) fn alone(timeout: Duration) -> (Self, CancelOnDrop) {
        let running = Arc::new(Semaphore::new(1));
        let permit = running.clone().try_acquire_owned().unwrap();
        Turn::start(running, permit, timeout)
    }

    /// Returns an error when the match has to stop. At the end of a turn, it returns after the turns of those who wait.
    pub(super) fn check(&mut self) -> Result<(), String> {
        if self.is_cancelled.load(Ordering::Relaxed) {
            return Err("the push ended before its files were selected".to_owned());
        }
        let now = Instant::now();
        if now >= self.deadline {
            let seconds = MATCH_TIMEOUT.as_secs();
            return Err(format!(
                "the names of the files were not compared with `ignore` within {seconds} seconds; write fewer or simpler \
                 patterns, or push a smaller directory"
            ));
        }
        if now >= self.ends {
            self.let_others_go_first(now);
        }
        Ok(())
    }

    fn let_others_go_first(&mut self, since: Instant) {
        drop(self.permit.take());
        let running = self.running.clone();
        // A permit that is free now is one that no other match waits for.
        let free = running.clone().try_acquire_owned();
        self.permit = Some(free.unwrap_or_else(|_| Handle::current().block_on(acquire(running))));
        let now = Instant::now();
        self.deadline += now - since;
        self.ends = now + TURN;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Matches that never end hold both places, and still a match of another organization has its turn. They have the
    /// rest of their time afterwards.
    #[tokio::test(flavor = "multi_thread")]
    async fn long_matches_let_others_go_first() {
        let (turns, begun) = (Arc::new(MatchTurns::default()), Arc::new(AtomicUsize::new(0)));
        let endless = ["o-1", "o-2"].map(|scope| {
            let (turns, begun) = (turns.clone(), begun.clone());
            tokio::spawn(async move {
                let work = move |turn: &mut Turn| {
                    begun.fetch_add(1, Ordering::Relaxed);
                    while turn.check().is_ok() {
                        std::thread::yield_now();
                    }
                    turn.deadline
                };
                turns.run(scope, work).await
            })
        });
        while begun.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        for scope in ["o-3", "o-4", "o-3"] {
            assert_eq!(turns.run(scope, |turn| turn.check()).await.unwrap(), Ok(()));
        }
        assert!(endless.iter().all(|running| !running.is_finished()), "others did not have to wait for their end");
        endless.iter().for_each(|running| running.abort());
    }

    /// An organization has one match at a time, however many of its members push.
    #[tokio::test(flavor = "multi_thread")]
    async fn organization_has_one_match_at_a_time() {
        let (turns, running) = (Arc::new(MatchTurns::default()), Arc::new(AtomicUsize::new(0)));
        let pushes = (0..20).map(|_| {
            let (turns, running) = (turns.clone(), running.clone());
            tokio::spawn(async move {
                let work = move |turn: &mut Turn| {
                    let others = running.fetch_add(1, Ordering::SeqCst);
                    turn.let_others_go_first(Instant::now());
                    running.fetch_sub(1, Ordering::SeqCst);
                    others
                };
                turns.run("o-1", work).await.unwrap()
            })
        });
        for others in futures::future::join_all(pushes).await {
            assert_eq!(others.unwrap(), 0);
        }
    }
}
