//! Turns: which layers are transferred at a time, of all images together.
//!
//! A few layers have a *place* and are transferred. While others wait, a layer keeps its place for one turn and then
//! gives it up: it stays as it is, and continues when a place is free for it. Places go to the share (a tenant) that
//! has used them for the least time, and then to the layer that has waited longest. Time alone decides, not the rate,
//! so a slow registry delays other shares by no more than their turns.
//!
//! Each layer that has begun has a process and a part of a layer on disk, so their number is limited as well, and that
//! of one share more so. When all have begun that may, and another share has none, one of the share that has most gives
//! up and begins again later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::progress::Progress;

/// How many layers are transferred at once.
const PLACES: usize = 3;

/// How many layers may have begun, and how many of one share.
const MAX_BEGUN: usize = 12;
const MAX_BEGUN_OF_SHARE: usize = 4;

/// How long a layer keeps its place while others wait, and how often it looks for them afterwards.
const TURN: Duration = Duration::from_secs(2);
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The window over which the rate is measured. Only time spent waiting for the registry counts, not time spent writing
/// to disk or waiting for a turn.
const RATE_WINDOW: Duration = Duration::from_secs(60);

/// Below this rate, in bytes per second, a transfer is aborted.
pub(super) const MIN_RATE: u64 = 64 << 10;

/// The turns of all pulls.
#[derive(Default)]
pub(in crate::local::images) struct Turns(Mutex<State>);

#[derive(Default)]
struct State {
    /// Counts layers, and how often one has begun to wait.
    count: u64,
    layers: Vec<Entry>,
    /// For how long the shares that have layers have used places, besides what they use now.
    used: BTreeMap<Arc<str>, Duration>,
}

/// A layer that waits, or has begun.
struct Entry {
    number: u64,
    share: Arc<str>,
    phase: Phase,
    /// Grows with every wait: what has waited longer comes first.
    order: u64,
    /// Whether it has to make room for another share.
    gives_up: bool,
    changed: Arc<Notify>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It may not begin yet.
    Queued,
    /// It has begun, and needs no place at the moment.
    Begun,
    /// It has begun, and waits for a place.
    Waiting,
    /// It has a place, since then.
    Placed(Instant),
    /// It is transferred, and about to end.
    Finishing,
}

/// A layer in the queue for its turns; it leaves when dropped.
pub(super) struct LayerTurns<'a> {
    turns: &'a Turns,
    number: u64,
    changed: Arc<Notify>,
    placed: Instant,
    paused: Duration,
    waited: Duration,
    received: u64,
}

/// Why a transfer does not continue.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TransferEnd {
    /// It is below the minimum rate.
    BelowMinimumRate,
    /// It makes room for another share, and has to begin again later.
    GivenUp,
}

impl Turns {
    /// Adds a layer, which has begun at once if there is room.
    pub(super) fn enter(&self, share: &Arc<str>) -> LayerTurns<'_> {
        let mut state = self.0.lock();
        let (number, changed) = (state.next_count(), Arc::new(Notify::new()));
        let least = state.least_used(|_| true);
        state.used.entry(share.clone()).or_insert(least);
        let (share, notify) = (share.clone(), changed.clone());
        let entry = Entry { number, share, phase: Phase::Queued, order: number, gives_up: false, changed: notify };
        state.layers.push(entry);
        state.schedule();
        let (paused, waited) = Default::default();
        LayerTurns { turns: self, number, changed, placed: Instant::now(), paused, waited, received: 0 }
    }
}

impl State {
    fn next_count(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn entry(&mut self, number: u64) -> &mut Entry {
        self.layers.iter_mut().find(|entry| entry.number == number).expect("a layer leaves only when it is dropped")
    }

    fn begun_of(&self, share: &str) -> usize {
        self.layers.iter().filter(|entry| entry.phase != Phase::Queued && *entry.share == *share).count()
    }

    /// Returns for how long a share has used places.
    fn used_by(&self, share: &str) -> Duration {
        let now = self.layers.iter().filter(|entry| *entry.share == *share).map(|entry| entry.phase.used());
        self.used.get(share).copied().unwrap_or_default() + now.sum()
    }

    /// Returns the least time that a share has used whose layers are in one of these phases.
    fn least_used(&self, is_meant: impl Fn(&Entry) -> bool) -> Duration {
        let shares = self.layers.iter().filter(|entry| is_meant(entry)).map(|entry| self.used_by(&entry.share));
        shares.min().unwrap_or_default()
    }

    /// Lets layers begin and gives them places, as far as there is room.
    fn schedule(&mut self) {
        while let Some(number) = self.next_to_begin() {
            self.set_phase(number, Phase::Begun);
        }
        self.make_room();
        while let Some(number) = self.next_to_place() {
            self.set_phase(number, Phase::Placed(Instant::now()));
        }
    }

    fn set_phase(&mut self, number: u64, phase: Phase) {
        let entry = self.entry(number);
        let (share, used) = (entry.share.clone(), entry.phase.used());
        entry.phase = phase;
        entry.changed.notify_one();
        *self.used.entry(share).or_default() += used;
    }

    fn next_to_begin(&self) -> Option<u64> {
        if self.layers.iter().filter(|entry| entry.phase != Phase::Queued).count() >= MAX_BEGUN {
            return None;
        }
        let queued = self.layers.iter().filter(|entry| entry.phase == Phase::Queued);
        let may_begin = queued
            .map(|entry| (self.begun_of(&entry.share), entry.order, entry.number))
            .filter(|(begun, ..)| *begun < MAX_BEGUN_OF_SHARE);
        may_begin.min().map(|(.., number)| number)
    }

    fn next_to_place(&self) -> Option<u64> {
        if self.layers.iter().filter(|entry| entry.phase.is_placed()).count() >= PLACES {
            return None;
        }
        let waiting = self.layers.iter().filter(|entry| entry.phase == Phase::Waiting);
        waiting.map(|entry| (self.used_by(&entry.share), entry.order, entry.number)).min().map(|(.., number)| number)
    }

    /// Asks one layer to give up for each share that has none although others have several. The newest has least to
    /// lose.
    fn make_room(&mut self) {
        let queued = self.layers.iter().filter(|entry| entry.phase == Phase::Queued).map(|entry| &entry.share);
        let without: BTreeSet<_> = queued.filter(|share| self.begun_of(share) == 0).cloned().collect();
        let given_up = self.layers.iter().filter(|entry| entry.gives_up).count();
        for _ in given_up..without.len() {
            let is_able = |entry: &&Entry| !matches!(entry.phase, Phase::Queued | Phase::Finishing) && !entry.gives_up;
            let able = self.layers.iter().filter(is_able);
            let most = able.map(|entry| (self.begun_of(&entry.share), entry.number)).filter(|(begun, _)| *begun > 1);
            let Some((_, number)) = most.max() else { return };
            let entry = self.entry(number);
            entry.gives_up = true;
            entry.changed.notify_one();
        }
    }

    /// Returns whether another layer should have the place of this one.
    fn is_place_wanted(&self, number: u64) -> bool {
        let Some(own) = self.layers.iter().find(|entry| entry.number == number) else { return false };
        let used = self.used_by(&own.share);
        let mut waiting = self.layers.iter().filter(|entry| entry.phase == Phase::Waiting);
        own.gives_up || waiting.any(|other| other.share == own.share || self.used_by(&other.share) < used)
    }
}

impl Phase {
    fn is_placed(self) -> bool {
        matches!(self, Phase::Placed(_))
    }

    /// Returns for how long a place has been used since it was given.
    fn used(self) -> Duration {
        match self {
            Phase::Placed(since) => since.elapsed(),
            Phase::Queued | Phase::Begun | Phase::Waiting | Phase::Finishing => Duration::ZERO,
        }
    }
}

impl LayerTurns<'_> {
    /// Returns whether the layer has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.turns.0.lock().entry(self.number).phase != Phase::Queued
    }

    /// Waits until the layer may begin.
    pub(super) async fn wait_until_begun(&self) {
        while !self.has_begun() {
            self.changed.notified().await;
        }
    }

    /// Waits for a place, if the layer has none.
    pub(super) async fn acquire_place(&mut self, progress: &Progress) -> Result<(), TransferEnd> {
        if !self.ask_for_place()? {
            let began = Instant::now();
            let wait = async {
                loop {
                    self.changed.notified().await;
                    if self.ask_for_place()? {
                        return Ok(());
                    }
                }
            };
            progress.report_while_waiting(wait).await?;
            self.paused += began.elapsed();
        }
        self.placed = Instant::now();
        Ok(())
    }

    /// Returns whether the layer has a place; if not, it waits for one from now on.
    fn ask_for_place(&self) -> Result<bool, TransferEnd> {
        let mut state = self.turns.0.lock();
        let order = state.next_count();
        let entry = state.entry(self.number);
        if entry.gives_up {
            return Err(TransferEnd::GivenUp);
        }
        if entry.phase == Phase::Begun {
            (entry.phase, entry.order) = (Phase::Waiting, order);
            let share = entry.share.clone();
            // A share that needed no places for a while has not saved up time.
            let least = state.least_used(|entry| entry.phase.is_placed() || entry.phase == Phase::Waiting);
            let used = state.used.entry(share).or_default();
            *used = (*used).max(least.saturating_sub(TURN));
            state.schedule();
        }
        Ok(state.entry(self.number).phase.is_placed())
    }

    /// Gives the place to others.
    pub(super) fn release_place(&self) {
        self.leave_place(Phase::Begun);
    }

    /// Gives the place up for good.
    pub(super) fn finish(&self) {
        self.leave_place(Phase::Finishing);
    }

    fn leave_place(&self, phase: Phase) {
        let mut state = self.turns.0.lock();
        state.set_phase(self.number, phase);
        state.schedule();
    }

    /// Runs `work` whenever the layer has its turn, and not while others have theirs.
    pub(super) async fn in_turns<T>(
        &mut self,
        progress: &Progress,
        work: impl Future<Output = T>,
    ) -> Result<T, TransferEnd> {
        tokio::pin!(work);
        loop {
            if self.is_turn_over() {
                self.release_place();
                self.acquire_place(progress).await?;
            }
            tokio::select! {
                done = &mut work => return Ok(done),
                () = self.wait_until_turn_is_over() => {}
            }
        }
    }

    fn is_turn_over(&self) -> bool {
        self.placed.elapsed() >= TURN && self.turns.0.lock().is_place_wanted(self.number)
    }

    async fn wait_until_turn_is_over(&self) {
        sleep_until(self.placed + TURN).await;
        while !self.is_turn_over() {
            sleep(CHECK_INTERVAL).await;
        }
    }

    /// Returns how long the layer has waited for its turns.
    pub(super) fn paused(&self) -> Duration {
        self.paused
    }

    /// Records received bytes and the time spent waiting for them.
    pub(super) fn record_transfer(&mut self, bytes: u64, waited: Duration) -> Result<(), TransferEnd> {
        self.received += bytes;
        self.waited += waited;
        if self.waited < RATE_WINDOW {
            return Ok(());
        }
        let rate = std::mem::take(&mut self.received) / std::mem::take(&mut self.waited).as_secs().max(1);
        if rate < MIN_RATE { Err(TransferEnd::BelowMinimumRate) } else { Ok(()) }
    }
}

impl Drop for LayerTurns<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.0.lock();
        state.set_phase(self.number, Phase::Finishing);
        state.layers.retain(|entry| entry.number != self.number);
        let State { layers, used, .. } = &mut *state;
        used.retain(|share, _| layers.iter().any(|entry| entry.share == *share));
        state.schedule();
    }
}

#[cfg(test)]
mod tests;
