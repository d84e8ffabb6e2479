//! One attempt, from its start to its end on all nodes: what they write is written down at once while nothing else is being
//! written, and gathers while something is, or for a moment where there is much. Whoever wants it stopped is heard meanwhile.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tarn_model::jobs::{Job, State};
use tarn_store::jobs;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::append::{self, Piece};
use super::crew::Crew;
use super::endings::{self, Verdict};
use super::gathered::{Batch, Gathered};
use super::hand::Hand;
use super::node::{End, Event};
use super::{compact, hand};
use crate::Result;

/// How much may gather while something is being written.
const GATHERED: usize = 4 << 20;

/// How often the row is looked at where another replica may have changed it, and where that cannot be.
const AMONG_OTHERS: Duration = Duration::from_millis(500);
const ALONE: Duration = Duration::from_secs(5);

/// An attempt that has ended on all nodes.
pub(super) struct Attempt {
    /// What it came to.
    pub(super) verdict: Verdict,
    /// What is still to be written down of it.
    pub(super) rest: Batch,
    /// Its nodes, which wait to hear that everything is written down.
    pub(super) crew: Crew,
}

type Writing = Pin<Box<dyn Future<Output = Result<(Piece, Option<Job>)>> + Send>>;

struct Attending<'a> {
    hand: &'a mut Hand,
    crew: Crew,
    gathered: Gathered,
    has_started: Vec<bool>,
    has_ended: Vec<bool>,
    /// What decides so far.
    failure: Option<Verdict>,
    /// How many processes of each node had been ended for want of memory when the attempt began, where that is known.
    memory_kills: Vec<u64>,
    changes: watch::Receiver<u64>,
    /// How often others had changed something about the job when its row was last looked at.
    seen: u64,
}

/// Attends to an attempt until it has ended everywhere.
pub(super) async fn attend(hand: &mut Hand) -> Result<Attempt> {
    let changes = hand.live.changes();
    let seen = hand.touches_of_others();
    let (crew, events) = Crew::begin(hand);
    let gathered = Gathered::new(hand.nodes.iter().map(|node| node.log_offset));
    let has_ended: Vec<bool> = hand.nodes.iter().map(|node| node.ended).collect();
    let has_started = has_ended.clone();
    let memory_kills = memory_kills(hand).await;
    let failure = None;
    let mut attending =
        Attending { hand, crew, gathered, has_started, has_ended, failure, memory_kills, changes, seen };
    attending.run(events).await?;
    let Attending { crew, mut gathered, failure, .. } = attending;
    let verdict = failure.unwrap_or(Verdict::COMPLETED);
    Ok(Attempt { verdict, rest: gathered.take_all(), crew })
}

/// How many processes of each node were ended for want of memory by now. Where an attempt runs already nobody knows how many it
/// were before, and all of them count.
async fn memory_kills(hand: &Hand) -> Vec<u64> {
    let mut kills = vec![0; hand.nodes.len()];
    if hand.job.state == State::Starting {
        for (kills, node) in kills.iter_mut().zip(&hand.nodes) {
            *kills = hand.control.driver().memory_kills(&node.instance).await.ok().flatten().unwrap_or(0);
        }
    }
    kills
}

impl Attending<'_> {
    async fn run(&mut self, mut events: mpsc::Receiver<(usize, Event)>) -> Result<()> {
        let mut writing: Option<Writing> = None;
        // Somebody may have wanted it stopped before anybody listened.
        self.look().await?;
        let look_every = if self.hand.control.generation().is_some() { ALONE } else { AMONG_OTHERS };
        let mut look_at = Instant::now() + look_every;
        loop {
            if writing.is_none() {
                if self.has_ended.iter().all(|ended| *ended) {
                    return Ok(());
                }
                writing = self.next_write();
            }
            let due = self.gathered.due();
            tokio::select! {
                written = async { writing.as_mut().expect("it is asked only if there is one").await }, if writing.is_some() => {
                    writing = None;
                    self.wrote(written?);
                }
                Some((at, event)) = events.recv(), if self.gathered.bytes() < GATHERED => self.heard(at, event).await,
                () = tokio::time::sleep_until(due.unwrap_or(look_at)), if due.is_some() => {
                    self.gathered.flush_due(Instant::now());
                }
                _ = self.changes.changed() => {
                    if self.is_changed_by_others() {
                        self.look().await?;
                    }
                }
                () = tokio::time::sleep_until(look_at) => {
                    look_at = Instant::now() + look_every;
                    self.look().await?;
                }
                Err(error) = self.crew.failed() => return Err(error),
            }
        }
    }

    /// What is to be written now, if anything.
    fn next_write(&mut self) -> Option<Writing> {
        let begins = self.hand.job.state == State::Starting && self.hand.has_begun && self.failure.is_none();
        let batch = match self.gathered.take(Instant::now()) {
            Some(batch) => batch,
            None if begins => self.gathered.take_all(),
            None => return None,
        };
        let (piece, lease) = (self.hand.piece(&batch), self.hand.lease());
        let many_rows = self.hand.tail.take_if_long(self.hand.job.log_bytes);
        Some(Box::pin(async move {
            // The batch holds its share of the memory until it is written.
            let _batch = batch;
            if let Some(run) = many_rows {
                compact::merge(&lease, run).await?;
            }
            append::write(lease, piece, begins).await
        }))
    }

    fn wrote(&mut self, (piece, job): (Piece, Option<Job>)) {
        self.hand.wrote(piece);
        self.crew.acknowledge(self.hand);
        if let Some(job) = job {
            self.renewed(job);
            self.hand.touch();
        }
    }

    async fn heard(&mut self, at: usize, event: Event) {
        match event {
            Event::Started => self.has_started[at] = true,
            Event::Data(data, memory) => self.gathered.push(at, data, memory, Instant::now()),
            Event::Ended(end) => {
                self.gathered.flush(at);
                self.has_ended[at] = true;
                self.has_started[at] |= matches!(end, End::Said(_));
                let verdict = self.judge(at, &end).await;
                self.hand.nodes[at].ended = verdict.is_none();
                if let Some(verdict) = verdict {
                    self.failure = Some(verdict.or(self.failure.take()));
                    self.crew.stop();
                }
            }
        }
        self.hand.has_begun = self.has_started.iter().all(|started| *started);
    }

    async fn judge(&self, at: usize, end: &End) -> Option<Verdict> {
        let (instance, name) = self.hand.node(at);
        let mut memory = None;
        if endings::is_kill(end) {
            let kills = self.hand.control.driver().memory_kills(instance).await.ok().flatten();
            // One that was restarted meanwhile counts from zero.
            if kills.is_some_and(|kills| kills > 0 && kills != self.memory_kills[at]) {
                let node = self.hand.instances.iter().find(|node| node.id == *instance);
                memory = node.map(|node| node.shape.memory_bytes);
            }
        }
        endings::verdict(&self.hand.job, end, &name, self.hand.nodes.len() > 1, memory)
    }

    /// Whether more has changed than what this driver itself did.
    fn is_changed_by_others(&mut self) -> bool {
        let others = self.hand.touches_of_others();
        std::mem::replace(&mut self.seen, others) != others
    }

    /// Reads the row, and stops the attempt if somebody wants that.
    async fn look(&mut self) -> Result<()> {
        let (id, epoch) = (&self.hand.job.id, self.hand.epoch);
        let read = || async { Ok(self.hand.control.store().read(|tx| jobs::leased(tx, id, epoch)).await?) };
        let job = hand::patiently("its row", read).await?;
        self.renewed(job);
        Ok(())
    }

    fn renewed(&mut self, job: Job) {
        self.hand.job = Job { log_bytes: self.hand.job.log_bytes, ..job };
        if matches!(self.hand.job.state, State::Stopping(_)) {
            self.crew.stop();
        }
    }
}
