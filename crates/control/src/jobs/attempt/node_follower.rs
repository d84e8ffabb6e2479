//! The task that follows one node of a job. It starts the attempt there or finds it again, and stays until the end of
//! the attempt is stored. When a stream breaks, it opens the next one and continues from the same byte. `node_stream`
//! handles one stream; nothing is stored here.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tarn_base::fair_share::Permit;
use tarn_link::{JobEnd, JobOrder, Purpose, Reply};
use tarn_model::ids::{InstanceId, JobId};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::guest_calls::{self, GuestError, NodeStatus, sanitize_guest_text};
use super::node_sweep;
use crate::Control;
use crate::jobs::backoff::Backoff;
use crate::jobs::files::send_files::{self, Sent};
use crate::jobs::queue::leased_job::DispatcherState;

/// How often a start that could work later is tried, if the job allows retries at all.
const MAX_STARTS: u32 = 4;

/// How often a start that the guest refuses is tried: a guest refuses while it knows too many jobs.
const MAX_REFUSALS: u32 = 10;

/// How often a guest may violate the protocol.
const MAX_FAULTS: u32 = 4;

/// How long after its grace a node may take to report that it has stopped an attempt.
const STOP_TIMEOUT: Duration = Duration::from_secs(300);

/// What happens on a node.
pub(super) enum NodeEvent {
    /// The commands run.
    Started,
    /// Output of the commands, with the permit for the memory it uses.
    Data(Bytes, Permit<JobId>),
    Ended(NodeEnd),
}

/// How an attempt ended on a node.
#[derive(Debug)]
pub(super) enum NodeEnd {
    /// As the guest reported it.
    Reported(JobEnd),
    NotStarted {
        reason: String,
        may_work_later: bool,
    },
    /// It was stopped before any of its processes ran there.
    NeverStarted,
    /// The node is gone, or does not know the attempt any more. The text is a whole clause that says why.
    Gone(String),
}

/// What the task that runs the attempt asks of the followers.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::jobs) struct AttemptSignal {
    /// How many bytes of the node's output are stored.
    pub(super) acknowledged: u64,
    /// The attempt has to stop.
    pub(in crate::jobs) stop: bool,
    /// The end of the attempt is stored.
    pub(in crate::jobs) done: bool,
}

/// Follows one node.
pub(super) struct NodeFollower {
    pub(super) control: Control,
    pub(super) shared: Arc<DispatcherState>,
    pub(super) job: JobId,
    pub(super) order: JobOrder,
    /// The index of this node among the nodes of the job.
    pub(super) at: usize,
    pub(super) instance: InstanceId,
    /// The host name of the node, for messages.
    pub(super) name: String,
    /// The boot of the instance in which the attempt began.
    pub(super) boot: u32,
    /// How many bytes have been forwarded.
    pub(super) offset: u64,
    /// Whether the attempt may still have to be started.
    pub(super) may_start: bool,
    /// Whether a failed start is retried.
    pub(super) retries_start: bool,
    pub(super) events: mpsc::Sender<(usize, NodeEvent)>,
    pub(super) signal: watch::Receiver<AttemptSignal>,
}

/// Why a stream has ended.
pub(super) enum StreamEnd {
    /// The end is acknowledged, or the attempt does not listen any more.
    Done,
    /// The attempt has ended.
    Ended(NodeEnd),
    /// The guest refuses to start the attempt now.
    Refused(String),
    /// The stream broke.
    Broken { why: String, received_data: bool },
    /// The guest violated the protocol.
    Fault(String),
}

/// The tries so far.
#[derive(Default)]
struct RetryState {
    backoff: Backoff,
    starts: u32,
    refusals: u32,
    faults: u32,
    /// When to give up on a node that has to stop the attempt.
    give_up_at: Option<Instant>,
}

impl NodeFollower {
    /// Follows the node until the end of the attempt is acknowledged.
    pub(super) async fn follow(mut self) {
        let streams = watch::Sender::new(0);
        let stopping = stop_when_signalled(
            self.control.clone(),
            (self.instance.clone(), self.job.clone(), self.order.attempt),
            self.signal.clone(),
            streams.subscribe(),
        );
        tokio::select! {
            () = self.follow_streams(&streams) => {}
            () = stopping => {}
        }
    }

    async fn follow_streams(&mut self, streams: &watch::Sender<u32>) {
        let mut retry = RetryState::default();
        loop {
            let stream_end = self.follow_one_stream(streams).await;
            match self.decide_retry(stream_end, &mut retry).await {
                ControlFlow::Continue(()) => retry.backoff.sleep().await,
                ControlFlow::Break(None) => return,
                ControlFlow::Break(Some(end)) => {
                    self.send_event(NodeEvent::Ended(end)).await;
                    return;
                }
            }
        }
    }

    /// Decides whether to open another stream. If not, the result is the end that was not sent yet, if any.
    async fn decide_retry(&self, stream_end: StreamEnd, retry: &mut RetryState) -> ControlFlow<Option<NodeEnd>> {
        match stream_end {
            StreamEnd::Done => return ControlFlow::Break(None),
            StreamEnd::Ended(NodeEnd::NotStarted { may_work_later: true, reason })
                if self.retries_start && retry.starts < MAX_STARTS =>
            {
                retry.starts += 1;
                tracing::debug!(job = %self.job, instance = %self.instance, reason, "the start is retried");
                retry.backoff.use_longest();
            }
            StreamEnd::Ended(end) => return ControlFlow::Break(Some(end)),
            StreamEnd::Refused(reason) => {
                tracing::debug!(job = %self.job, instance = %self.instance, reason, "a node refuses to start a job");
                retry.refusals += 1;
                if retry.refusals >= MAX_REFUSALS {
                    return ControlFlow::Break(Some(NodeEnd::NotStarted { reason, may_work_later: true }));
                }
                // After making room, the start is retried at once. A second refusal has another cause, which takes
                // time.
                if node_sweep::make_room(&self.control, &self.shared, &self.instance).await && retry.refusals == 1 {
                    retry.backoff.reset()
                } else {
                    retry.backoff.use_longest()
                }
            }
            StreamEnd::Fault(why) => {
                tracing::warn!(job = %self.job, instance = %self.instance, why, "a node violates the protocol");
                retry.faults += 1;
                if retry.faults >= MAX_FAULTS {
                    let why = format!("node {} does not follow the protocol", self.name);
                    return ControlFlow::Break(Some(NodeEnd::Gone(why)));
                }
            }
            StreamEnd::Broken { why, received_data } => {
                tracing::debug!(job = %self.job, instance = %self.instance, why, "the stream to a node broke");
                if received_data {
                    retry.backoff.reset();
                    retry.give_up_at = None;
                }
                if let NodeStatus::Gone(why) =
                    guest_calls::read_node_status(&self.control, &self.instance, &self.name).await
                {
                    return ControlFlow::Break(Some(NodeEnd::Gone(why)));
                }
            }
        }
        if self.has_stop_timed_out(retry) {
            let why = format!("node {} did not report that the job was stopped", self.name);
            return ControlFlow::Break(Some(NodeEnd::Gone(why)));
        }
        ControlFlow::Continue(())
    }

    /// Returns whether a node that has to stop the attempt has exceeded its time.
    fn has_stop_timed_out(&self, retry: &mut RetryState) -> bool {
        if !self.signal.borrow().stop {
            return false;
        }
        let grace = Duration::from_secs(self.order.grace_seconds.into());
        let now = Instant::now();
        now >= *retry.give_up_at.get_or_insert(now + grace + STOP_TIMEOUT)
    }

    /// Opens one stream and follows it until it ends.
    async fn follow_one_stream(&mut self, streams: &watch::Sender<u32>) -> StreamEnd {
        let starts = self.may_start && self.offset == 0 && !self.signal.borrow().stop;
        let purpose = if starts {
            Purpose::RunJob(Box::new(self.order.clone()))
        } else {
            Purpose::FollowJob { job: self.order.job.clone(), attempt: self.order.attempt, offset: self.offset }
        };
        let (reply, mut link) = match guest_calls::open_stream(&self.control, &self.instance, purpose).await {
            Ok(opened) => opened,
            Err(GuestError::Unsupported(reason)) => {
                return StreamEnd::Ended(NodeEnd::NotStarted { reason, may_work_later: false });
            }
            Err(GuestError::Refused(reason)) if starts => return StreamEnd::Refused(reason),
            Err(GuestError::Refused(reason)) => {
                return StreamEnd::Ended(NodeEnd::Gone(format!(
                    "node {} refuses to report on the job: {reason}",
                    self.name
                )));
            }
            Err(GuestError::Fault(why)) => return StreamEnd::Fault(why),
            Err(GuestError::Broken(why)) => return StreamEnd::Broken { why, received_data: false },
        };
        streams.send_modify(|streams| *streams += 1);
        match reply {
            Reply::Ready => self.follow_stream(&mut link, streams).await,
            Reply::SendFiles => {
                match send_files::send_files(&self.control, &self.job, &mut link, &mut self.signal).await {
                    Ok(Sent::All) => self.follow_stream(&mut link, streams).await,
                    Ok(Sent::Stopped) => StreamEnd::Ended(NodeEnd::NeverStarted),
                    Ok(Sent::Refused { reason, may_work_later }) => {
                        StreamEnd::Ended(NodeEnd::NotStarted { reason: sanitize_guest_text(&reason), may_work_later })
                    }
                    Ok(Sent::Fault(why)) => StreamEnd::Fault(sanitize_guest_text(&why)),
                    Err(why) => StreamEnd::Broken { why, received_data: false },
                }
            }
            Reply::NoSuchJob => self.explain_missing_attempt().await,
            other => StreamEnd::Fault(format!("the guest replied {other:?}")),
        }
    }

    /// Explains why the guest does not know this attempt.
    async fn explain_missing_attempt(&self) -> StreamEnd {
        if self.may_start && self.offset == 0 && self.signal.borrow().stop {
            return StreamEnd::Ended(NodeEnd::NeverStarted);
        }
        let name = &self.name;
        let why = match guest_calls::read_node_status(&self.control, &self.instance, name).await {
            NodeStatus::Gone(why) => why,
            NodeStatus::Up(node) if node.boot != self.boot => format!("node {name} was restarted while the job ran"),
            NodeStatus::Up(_) | NodeStatus::Away => format!("node {name} does not know the job any more"),
        };
        StreamEnd::Ended(NodeEnd::Gone(why))
    }

    /// Sends an event to the attempt. Returns whether the attempt still listens.
    pub(super) async fn send_event(&self, event: NodeEvent) -> bool {
        self.events.send((self.at, event)).await.is_ok()
    }
}

/// Asks the guest to stop the attempt once that is signalled. Asks again after each new stream and when the commands
/// have started, because the guest may not have known the attempt before.
async fn stop_when_signalled(
    control: Control,
    (instance, job, attempt): (InstanceId, JobId, u32),
    mut signal: watch::Receiver<AttemptSignal>,
    mut streams: watch::Receiver<u32>,
) {
    let mut is_wanted = signal.wait_for(|signal| signal.stop).await.is_ok();
    while is_wanted {
        streams.borrow_and_update();
        let mut backoff = Backoff::default();
        while let Err(error) = guest_calls::request_stop(&control, &instance, &job, attempt).await {
            tracing::debug!(%job, %instance, %error, "a node could not be asked to stop a job");
            backoff.sleep().await;
        }
        is_wanted = streams.changed().await.is_ok();
    }
    std::future::pending().await
}
