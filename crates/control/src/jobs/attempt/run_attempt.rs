//! One attempt, from its start to its end on all nodes. Output is stored at once while no write is in progress. It is
//! buffered during a write, and for a moment after a burst. Requests to stop are noticed meanwhile.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tarn_model::jobs::{Job, State};
use tarn_store::jobs;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::node_follower::{NodeEnd, NodeEvent};
use super::node_followers::NodeFollowers;
use super::verdict::{self, Verdict};
use crate::Result;
use crate::jobs::logs::append::{self, LogPiece};
use crate::jobs::logs::compact;
use crate::jobs::logs::log_buffer::{LogBatch, LogBuffer};
use crate::jobs::queue::leased_job::{LeasedJob, retry_while_unavailable};

/// How much output may be buffered during a write.
const MAX_BUFFERED: usize = 4 << 20;

/// How often the row is read again: where another replica may change it, and where only this engine does.
const RELOAD_INTERVAL_SHARED: Duration = Duration::from_millis(500);
const RELOAD_INTERVAL_ALONE: Duration = Duration::from_secs(5);

/// An attempt that has ended on all nodes.
pub(in crate::jobs) struct EndedAttempt {
    pub(in crate::jobs) verdict: Verdict,
    /// The output that is not stored yet.
    pub(in crate::jobs) rest: LogBatch,
    /// The followers of its nodes, which wait until the end is stored.
    pub(in crate::jobs) followers: NodeFollowers,
}

type PendingWrite = Pin<Box<dyn Future<Output = Result<(LogPiece, Option<Job>)>> + Send>>;

struct RunningAttempt<'a> {
    leased: &'a mut LeasedJob,
    followers: NodeFollowers,
    buffer: LogBuffer,
    has_started: Vec<bool>,
    has_ended: Vec<bool>,
    /// The verdict so far, if a node has failed.
    failure: Option<Verdict>,
    /// How many processes of each node the kernel had killed for lack of memory when the attempt began, where that is
    /// known.
    memory_kills: Vec<u64>,
    changes: watch::Receiver<u64>,
    /// How many state changes others had made when the row was last read.
    known_changes: u64,
}

/// Runs an attempt until it has ended on all nodes.
pub(in crate::jobs) async fn run_attempt(leased: &mut LeasedJob) -> Result<EndedAttempt> {
    let changes = leased.live.subscribe();
    let known_changes = leased.changes_by_others();
    let (followers, events) = NodeFollowers::spawn(leased);
    let buffer = LogBuffer::new(leased.nodes.iter().map(|node| node.log_offset));
    let has_ended: Vec<bool> = leased.nodes.iter().map(|node| node.ended).collect();
    let has_started = has_ended.clone();
    let memory_kills = read_memory_kills(leased).await;
    let failure = None;
    let mut attempt = RunningAttempt {
        leased,
        followers,
        buffer,
        has_started,
        has_ended,
        failure,
        memory_kills,
        changes,
        known_changes,
    };
    attempt.run_until_ended(events).await?;
    let RunningAttempt { followers, mut buffer, failure, .. } = attempt;
    let verdict = failure.unwrap_or(Verdict::COMPLETED);
    Ok(EndedAttempt { verdict, rest: buffer.take_all_ready(), followers })
}

/// Reads how many processes of each node the kernel has killed for lack of memory. For an attempt that already runs,
/// the number before its start is unknown, and all kills count.
async fn read_memory_kills(leased: &LeasedJob) -> Vec<u64> {
    let mut kills = vec![0; leased.nodes.len()];
    if leased.job.state == State::Starting {
        for (kills, node) in kills.iter_mut().zip(&leased.nodes) {
            *kills = leased.control.driver().memory_kills(&node.instance).await.ok().flatten().unwrap_or(0);
        }
    }
    kills
}

impl RunningAttempt<'_> {
    async fn run_until_ended(&mut self, mut events: mpsc::Receiver<(usize, NodeEvent)>) -> Result<()> {
        let mut writing: Option<PendingWrite> = None;
        // A stop may have been requested before this task subscribed.
        self.reload_job().await?;
        let reload_every =
            if self.leased.control.generation().is_some() { RELOAD_INTERVAL_ALONE } else { RELOAD_INTERVAL_SHARED };
        let mut reload_at = Instant::now() + reload_every;
        loop {
            if writing.is_none() {
                if self.has_ended.iter().all(|ended| *ended) {
                    return Ok(());
                }
                writing = self.start_write();
            }
            let (due, has_room) = (self.buffer.next_flush(), self.buffer.buffered_bytes() < MAX_BUFFERED);
            tokio::select! {
                written = async { writing.as_mut().expect("guarded by is_some").await }, if writing.is_some() => {
                    writing = None;
                    let (piece, job) = written?;
                    self.finish_write(piece, job);
                }
                Some((at, event)) = events.recv(), if has_room => self.handle_event(at, event).await,
                () = tokio::time::sleep_until(due.unwrap_or(reload_at)), if due.is_some() => {
                    self.buffer.flush_due(Instant::now());
                }
                _ = self.changes.changed() => {
                    if self.is_changed_by_others() {
                        self.reload_job().await?;
                    }
                }
                () = tokio::time::sleep_until(reload_at) => {
                    reload_at = Instant::now() + reload_every;
                    self.reload_job().await?;
                }
                Err(error) = self.followers.wait_for_panic() => return Err(error),
            }
        }
    }

    /// Starts the next write, if there is something to store.
    fn start_write(&mut self) -> Option<PendingWrite> {
        let begins = self.leased.job.state == State::Starting && self.leased.has_begun && self.failure.is_none();
        let batch = match self.buffer.take_ready(Instant::now()) {
            Some(batch) => batch,
            None if begins => self.buffer.take_all_ready(),
            None => return None,
        };
        let (piece, lease) = (self.leased.log_piece(&batch), self.leased.lease());
        let many_rows = self.leased.tail.take_if_long(self.leased.job.log_bytes);
        Some(Box::pin(async move {
            // The batch keeps its memory permit until it is stored.
            let _batch = batch;
            if let Some(run) = many_rows {
                compact::merge_rows(&lease, run).await?;
            }
            append::write_piece(lease, piece, begins).await
        }))
    }

    fn finish_write(&mut self, piece: LogPiece, job: Option<Job>) {
        self.leased.record_written(piece);
        self.followers.acknowledge_output(self.leased);
        if let Some(job) = job {
            self.replace_job(job);
            self.leased.notify_own_change();
        }
    }

    async fn handle_event(&mut self, at: usize, event: NodeEvent) {
        match event {
            NodeEvent::Started => self.has_started[at] = true,
            NodeEvent::Data(data, memory) => self.buffer.push(at, data, memory, Instant::now()),
            NodeEvent::Ended(end) => {
                self.buffer.flush_line(at);
                self.has_ended[at] = true;
                self.has_started[at] |= matches!(end, NodeEnd::Reported(_));
                let verdict = self.decide_verdict(at, &end).await;
                self.leased.nodes[at].ended = verdict.is_none();
                if let Some(verdict) = verdict {
                    self.failure = Some(verdict.or_earlier(self.failure.take()));
                    self.followers.stop_attempt();
                }
            }
        }
        self.leased.has_begun = self.has_started.iter().all(|started| *started);
    }

    async fn decide_verdict(&self, at: usize, end: &NodeEnd) -> Option<Verdict> {
        let (instance, name) = self.leased.instance_and_name(at);
        let mut memory = None;
        if verdict::is_killed(end) {
            let kills = self.leased.control.driver().memory_kills(instance).await.ok().flatten();
            // The counter starts at zero after a restart of the instance.
            if kills.is_some_and(|kills| kills > 0 && kills != self.memory_kills[at]) {
                let node = self.leased.instances.iter().find(|node| node.id == *instance);
                memory = node.map(|node| node.shape.memory_bytes);
            }
        }
        verdict::judge_node_end(&self.leased.job, end, &name, self.leased.nodes.len() > 1, memory)
    }

    /// Returns whether others have changed the job since the last call.
    fn is_changed_by_others(&mut self) -> bool {
        let others = self.leased.changes_by_others();
        std::mem::replace(&mut self.known_changes, others) != others
    }

    /// Reads the row, and stops the attempt if that is requested.
    async fn reload_job(&mut self) -> Result<()> {
        let (id, epoch) = (&self.leased.job.id, self.leased.epoch);
        let read = || async { Ok(self.leased.control.store().read(|tx| jobs::leased(tx, id, epoch)).await?) };
        let job = retry_while_unavailable("its row", read).await?;
        self.replace_job(job);
        Ok(())
    }

    fn replace_job(&mut self, job: Job) {
        self.leased.job = Job { log_bytes: self.leased.job.log_bytes, ..job };
        if matches!(self.leased.job.state, State::Stopping(_)) {
            self.followers.stop_attempt();
        }
    }
}
