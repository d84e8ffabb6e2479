//! The engine's time: it counts what really passed, and follows the clock of the host by a rule
//! ([decision 29](../../../../docs/decisions/0029-clock.md)). When that clock jumps, deadlines move with the time, in
//! one transaction, so that no claim fails and no lease ends because of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tarn_model::clock_jumps::{Anchor, Correction, Judge, Jump, Reading, ahead_of_answer};
use tarn_model::events::{Event, HostEvent};
use tarn_model::{Time, Timekeeper};
use tarn_store::{Store, Tx, clock, events};

use crate::{Control, Error, Result};

/// How often the clocks are compared.
const INTERVAL: Duration = Duration::from_secs(1);

/// How often the time is stored. After a restart of the host this is how far it may be behind.
const STORE_INTERVAL: Duration = Duration::from_secs(300);

/// A replica whose clock differs more from the database server's does not believe it.
const TOLERANCE: Duration = Duration::from_secs(2);

/// All replicas follow a jump within this time.
const FOLLOWED_WITHIN_US: i64 = 60_000_000;

/// What is compared with the last turn.
pub struct ClockWatch {
    keeper: Arc<dyn Timekeeper>,
    judge: Judge,
    /// When the time was last stored, and by how much it was corrected since.
    stored: Option<Time>,
    corrected_us: i64,
}

/// Continues the time of the previous engine. Is called when the engine starts, before anything else reads the time.
/// Replicas begin with the time that the database server and their host agree on, or with that of the server.
pub async fn resume(store: &Store, keeper: Arc<dyn Timekeeper>) -> Result<ClockWatch> {
    let asked = keeper.read().set;
    let server = clock::server_time(store).await.map_err(Error::from)?;
    let reading = keeper.read();
    if let Some(theirs) = server {
        let ahead_us = ahead_of_answer(theirs, asked, reading.set);
        if is_much(ahead_us) {
            tracing::warn!(ahead_us, "the clock of this host differs from the database server's, whose time is used");
            keeper.shift(reading.ahead_us().saturating_add(ahead_us));
        }
    } else {
        let kept = store.read(clock::anchor).await.map_err(|error: tarn_store::Error| Error::from(error))?;
        if kept != Anchor::default() {
            let resumed = kept.resume(&reading);
            keeper.shift(resumed.time.as_micros().saturating_sub(reading.now.as_micros()));
            if resumed.uncounted_us > 0 {
                move_uncounted(store, kept.at(&keeper.read()), resumed.uncounted_us).await?;
            }
        }
    }
    let mut watch = ClockWatch { keeper, judge: Judge::default(), stored: None, corrected_us: 0 };
    if let Err(error) = watch.store_anchor(store).await {
        // The reconciler tries it again.
        tracing::warn!(%error, "the time could not be stored");
    }
    Ok(watch)
}

/// Moves deadlines by the time for which the host was off, as far as it does not count, together with the anchor:
/// after a crash they must not move again.
async fn move_uncounted(store: &Store, after: Anchor, by_us: i64) -> Result<()> {
    let write = store.write(move |tx| -> std::result::Result<(), tarn_store::Error> {
        clock::move_deadlines(tx, by_us)?;
        clock::set_anchor(tx, &after)
    });
    write.await.map_err(Error::from)?;
    tracing::info!(by_us, "the host was off for long, or its clock jumped meanwhile; deadlines were moved");
    Ok(())
}

impl ClockWatch {
    /// Compares the clocks once, and follows a difference.
    pub async fn tick(&mut self, control: &Control) -> Result<Duration> {
        let asked = self.keeper.read().set;
        let server = clock::server_time(control.store()).await.map_err(Error::from)?;
        self.compare(control, server, asked).await
    }

    /// Compares the clocks with each other and with the time of the database server, if there is one, which was asked
    /// at this time of the host's clock.
    pub async fn compare(&mut self, control: &Control, server: Option<Time>, asked: Time) -> Result<Duration> {
        let reading = self.keeper.read();
        if server.is_some_and(|theirs| is_much(ahead_of_answer(theirs, asked, reading.set))) {
            // One of the two is wrong. The time goes on as it is.
            metrics::gauge!("tarn_clock_disagrees").set(1.0);
            return Ok(INTERVAL);
        }
        metrics::gauge!("tarn_clock_disagrees").set(0.0);
        match self.judge.judge(reading.ahead_us()) {
            Correction::None => {}
            Correction::Step(by_us) => {
                self.keeper.shift(by_us);
                self.corrected_us += by_us;
            }
            Correction::Jump(by_us) => self.follow_jump(control, by_us, server.is_some()).await?,
        }
        if self.judge.is_new_jump() {
            tracing::warn!(
                by_us = reading.ahead_us(),
                "the clock of this host jumped; deadlines will follow if it stays"
            );
        }
        let is_due = self.stored.is_none_or(|at| reading.now >= at.after(STORE_INTERVAL));
        if is_due || is_much(self.corrected_us) {
            self.store_anchor(control.store()).await?;
        }
        Ok(INTERVAL)
    }

    /// Moves the time and the deadlines in one transaction. On SQLite everything that is written before it has the old
    /// time, and everything after it the new one.
    async fn follow_jump(&mut self, control: &Control, by_us: i64, is_shared: bool) -> Result<()> {
        let (keeper, shifted) = (self.keeper.clone(), Arc::new(AtomicBool::new(false)));
        let (lease, was_shifted) = (control.settings().lease, shifted.clone());
        let write = control.store().write(move |tx| -> std::result::Result<Option<u64>, tarn_store::Error> {
            // A transaction that lost a race is repeated.
            if shifted.swap(false, Ordering::SeqCst) {
                keeper.shift(-by_us);
            }
            let reading = keeper.read();
            let moved = follow(tx, &reading, by_us, is_shared.then_some(lease))?;
            keeper.shift(by_us);
            shifted.store(true, Ordering::SeqCst);
            Ok(moved)
        });
        let moved = match write.await {
            Ok(moved) => moved,
            Err(error) => {
                if was_shifted.load(Ordering::SeqCst) {
                    self.keeper.shift(-by_us);
                }
                return Err(error.into());
            }
        };
        self.stored = Some(self.keeper.now());
        self.corrected_us = 0;
        control.memory.unknown_resources.forget();
        control.memory.due.notify_one();
        metrics::counter!("tarn_clock_jumps_total").increment(1);
        let open_requests = moved.unwrap_or_default();
        tracing::warn!(by_us, open_requests, "the time follows the clock of this host, and deadlines moved with it");
        Ok(())
    }

    async fn store_anchor(&mut self, store: &Store) -> Result<()> {
        let reading = self.keeper.read();
        let at = reading.now;
        let write = store.write(move |tx| -> std::result::Result<(), tarn_store::Error> {
            let kept = clock::anchor(tx)?.at(&reading);
            clock::set_anchor(tx, &kept)
        });
        write.await.map_err(Error::from)?;
        (self.stored, self.corrected_us) = (Some(at), 0);
        Ok(())
    }
}

/// Moves the deadlines, unless another replica did, and records the jump. With a `lease` the database has replicas: a
/// jump back moves nothing there, because a replica that has not noticed it yet would find deadlines passed.
fn follow(
    tx: &mut Tx<'_>,
    reading: &Reading,
    by_us: i64,
    lease: Option<Duration>,
) -> std::result::Result<Option<u64>, tarn_store::Error> {
    let kept = clock::anchor(tx)?;
    let after = Time::from_micros(reading.now.as_micros().saturating_add(by_us));
    let is_same =
        |jump: &Jump| !is_much(jump.by_us.saturating_sub(by_us)) && after.as_micros() - jump.at_us < FOLLOWED_WITHIN_US;
    // Another replica has followed the jump. If its time is ahead without a jump, this replica was paused.
    let is_ahead = is_much(kept.time().as_micros().saturating_sub(reading.now.as_micros()).max(0));
    if lease.is_some() && (is_ahead || kept.jumps().last().is_some_and(is_same)) {
        return Ok(None);
    }
    let moved = match lease {
        Some(lease) if by_us < 0 => {
            clock::pull_forward(tx, by_us, after.after(lease))?;
            0
        }
        _ => clock::move_deadlines(tx, by_us)?,
    };
    clock::set_anchor(tx, &kept.at(reading).with_jump(after, by_us))?;
    let jumped = HostEvent::ClockJumped { by_us, open_requests: moved };
    tx.record(events::ENGINE, Event::Host("machine".to_owned(), jumped))?;
    Ok(Some(moved))
}

fn is_much(us: i64) -> bool {
    Duration::from_micros(us.unsigned_abs()) >= TOLERANCE
}
