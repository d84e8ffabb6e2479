//! One node of a job: starts the attempt there or finds it again, and stays until its end is written down. Whatever breaks in
//! between is dialled again, from the byte where it broke. What comes over a stream is heard in `listen`; nothing is written
//! down here.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tarn_link::{Answer, JobEnd, JobOrder, Purpose};
use tarn_model::ids::{InstanceId, JobId};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::guests::{self, Sight, Trouble, plain};
use super::hand::Shared;
use super::memory::{Held, Share};
use super::pauses::Pauses;
use super::send_files::{self, Sent};
use super::sweep;
use crate::Control;

/// How often a start is tried that could work later, while the job may be tried again at all.
const STARTS: u32 = 4;

/// How often a start is tried that the guest refuses: it may know too many jobs, of which others are forgotten meanwhile.
const REFUSALS: u32 = 10;

/// How often a guest may say what makes no sense.
const FAULTS: u32 = 4;

/// How long after its grace a node has that should stop an attempt and cannot be heard.
const STOPPING: Duration = Duration::from_secs(300);

/// What happens on a node.
pub(super) enum Event {
    /// The commands run.
    Started,
    /// They wrote this, which needs so much of the memory that jobs have for such data.
    Data(Bytes, Held),
    /// It is over there.
    Ended(End),
}

/// How it ended on a node.
#[derive(Debug)]
pub(super) enum End {
    /// As the guest says.
    Said(JobEnd),
    /// It could not be started.
    NotStarted { reason: String, may_work_later: bool },
    /// It was stopped before anything of it ran there.
    NeverStarted,
    /// The node is gone, or knows nothing of it any more: why, as a whole clause.
    Gone(String),
}

/// What the driver of the job wants of its nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    /// So many bytes are written down.
    pub(super) acknowledged: u64,
    /// It has to end.
    pub(super) stop: bool,
    /// Its end is written down.
    pub(super) done: bool,
}

/// Follows one node.
pub(super) struct Follower {
    pub(super) control: Control,
    pub(super) shared: Arc<Shared>,
    pub(super) job: JobId,
    pub(super) order: JobOrder,
    /// Which of the nodes of the job this is.
    pub(super) at: usize,
    pub(super) instance: InstanceId,
    /// Its host name, for people.
    pub(super) name: String,
    /// The start of the instance in which the attempt began.
    pub(super) boot: u32,
    /// How many bytes were passed on.
    pub(super) offset: u64,
    /// Whether the attempt may still have to be started.
    pub(super) may_start: bool,
    /// Whether a start that did not work is worth a few more tries.
    pub(super) is_patient: bool,
    pub(super) events: mpsc::Sender<(usize, Event)>,
    pub(super) told: watch::Receiver<Told>,
    pub(super) memory: Share,
}

/// Why a stream is over.
pub(super) enum Over {
    /// Everything is said, or nobody listens any more.
    Done,
    /// The attempt has ended.
    Ended(End),
    /// The guest does not want to start it, but may want to later.
    Refused(String),
    /// The stream broke; whether it had brought anything before.
    Broken { why: String, brought: bool },
    /// What the guest said makes no sense.
    Fault(String),
}

/// What has been tried.
#[derive(Default)]
struct Tried {
    pauses: Pauses,
    starts: u32,
    refusals: u32,
    faults: u32,
    /// Until when a node may be heard that should stop the attempt.
    until: Option<Instant>,
}

impl Follower {
    /// Follows the node until everything is said.
    pub(super) async fn follow(mut self) {
        let links = watch::Sender::new(0);
        let stopping = stop_when_told(
            self.control.clone(),
            (self.instance.clone(), self.job.clone(), self.order.attempt),
            self.told.clone(),
            links.subscribe(),
        );
        tokio::select! {
            () = self.follow_on(&links) => {}
            () = stopping => {}
        }
    }

    async fn follow_on(&mut self, links: &watch::Sender<u32>) {
        let mut tried = Tried::default();
        loop {
            let over = self.one_stream(links).await;
            if let Some(end) = self.goes_on(over, &mut tried).await {
                if let Some(end) = end {
                    self.tell(Event::Ended(end)).await;
                }
                return;
            }
            tried.pauses.pause().await;
        }
    }

    /// Whether another stream is worth a try: `None` is yes. Otherwise it is over, with an end that was not told yet if there is
    /// one.
    async fn goes_on(&self, over: Over, tried: &mut Tried) -> Option<Option<End>> {
        match over {
            Over::Done => return Some(None),
            Over::Ended(End::NotStarted { may_work_later: true, reason })
                if self.is_patient && tried.starts < STARTS =>
            {
                tried.starts += 1;
                tracing::debug!(job = %self.job, instance = %self.instance, reason, "it is started again");
                tried.pauses.lengthen();
            }
            Over::Ended(end) => return Some(Some(end)),
            Over::Refused(reason) => {
                tracing::debug!(job = %self.job, instance = %self.instance, reason, "a node refuses it");
                tried.refusals += 1;
                if tried.refusals >= REFUSALS {
                    return Some(Some(End::NotStarted { reason, may_work_later: true }));
                }
                // Where there is room now it is tried at once; whoever is refused again has to wait for something else.
                match sweep::make_room(&self.control, &self.shared, &self.instance).await && tried.refusals == 1 {
                    true => tried.pauses.reset(),
                    false => tried.pauses.lengthen(),
                }
            }
            Over::Fault(why) => {
                tracing::warn!(job = %self.job, instance = %self.instance, why, "a node does not follow the protocol");
                tried.faults += 1;
                if tried.faults >= FAULTS {
                    return Some(Some(End::Gone(format!("node {} does not follow the protocol", self.name))));
                }
            }
            Over::Broken { why, brought } => {
                tracing::debug!(job = %self.job, instance = %self.instance, why, "the stream to a node broke");
                if brought {
                    tried.pauses.reset();
                    tried.until = None;
                }
                if let Sight::Gone(why) = guests::look(&self.control, &self.instance, &self.name).await {
                    return Some(Some(End::Gone(why)));
                }
            }
        }
        self.is_given_up(tried).then(|| Some(End::Gone(format!("node {} did not say how it was stopped", self.name))))
    }

    /// Whether a node that should stop the attempt has had its time.
    fn is_given_up(&self, tried: &mut Tried) -> bool {
        if !self.told.borrow().stop {
            return false;
        }
        let grace = Duration::from_secs(self.order.grace_seconds.into());
        let now = Instant::now();
        now >= *tried.until.get_or_insert(now + grace + STOPPING)
    }

    /// Dials once and stays as long as the stream does.
    async fn one_stream(&mut self, links: &watch::Sender<u32>) -> Over {
        let starts = self.may_start && self.offset == 0 && !self.told.borrow().stop;
        let purpose = match starts {
            true => Purpose::RunJob(Box::new(self.order.clone())),
            false => {
                Purpose::FollowJob { job: self.order.job.clone(), attempt: self.order.attempt, offset: self.offset }
            }
        };
        let (answer, mut link) = match guests::open(&self.control, &self.instance, purpose).await {
            Ok(opened) => opened,
            Err(Trouble::Impossible(reason)) => {
                return Over::Ended(End::NotStarted { reason, may_work_later: false });
            }
            Err(Trouble::Refused(reason)) if starts => return Over::Refused(reason),
            Err(Trouble::Refused(reason)) => {
                return Over::Ended(End::Gone(format!("node {} does not say how it went on: {reason}", self.name)));
            }
            Err(Trouble::Fault(why)) => return Over::Fault(why),
            Err(Trouble::Broken(why)) => return Over::Broken { why, brought: false },
        };
        links.send_modify(|links| *links += 1);
        match answer {
            Answer::Ready => self.listen(&mut link, links).await,
            Answer::SendFiles => match send_files::send(&self.control, &self.job, &mut link, &mut self.told).await {
                Ok(Sent::All) => self.listen(&mut link, links).await,
                Ok(Sent::Stopped) => Over::Ended(End::NeverStarted),
                Ok(Sent::Refused { reason, may_work_later }) => {
                    Over::Ended(End::NotStarted { reason: plain(&reason), may_work_later })
                }
                Ok(Sent::Fault(why)) => Over::Fault(plain(&why)),
                Err(why) => Over::Broken { why, brought: false },
            },
            Answer::NoSuchJob => self.not_there().await,
            other => Over::Fault(format!("it answered {other:?}")),
        }
    }

    /// The guest knows nothing of this attempt.
    async fn not_there(&self) -> Over {
        if self.may_start && self.offset == 0 && self.told.borrow().stop {
            return Over::Ended(End::NeverStarted);
        }
        let name = &self.name;
        let why = match guests::look(&self.control, &self.instance, name).await {
            Sight::Gone(why) => why,
            Sight::There(node) if node.boot != self.boot => format!("node {name} was restarted while it ran"),
            Sight::There(_) | Sight::Away => format!("node {name} does not know it any more"),
        };
        Over::Ended(End::Gone(why))
    }

    /// Whether the driver of the job is still there to hear it.
    pub(super) async fn tell(&self, event: Event) -> bool {
        self.events.send((self.at, event)).await.is_ok()
    }
}

/// Asks the guest to end the attempt as soon as that is wanted, and again after each new stream and when the commands have
/// begun: it may not have known the attempt before.
async fn stop_when_told(
    control: Control,
    (instance, job, attempt): (InstanceId, JobId, u32),
    mut told: watch::Receiver<Told>,
    mut links: watch::Receiver<u32>,
) {
    let mut is_wanted = told.wait_for(|told| told.stop).await.is_ok();
    while is_wanted {
        links.borrow_and_update();
        let mut pauses = Pauses::default();
        while let Err(trouble) = guests::stop(&control, &instance, &job, attempt).await {
            tracing::debug!(%job, %instance, %trouble, "a node could not be told to stop it");
            pauses.pause().await;
        }
        is_wanted = links.changed().await.is_ok();
    }
    std::future::pending().await
}
