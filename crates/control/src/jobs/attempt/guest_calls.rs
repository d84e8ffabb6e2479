//! Calls to guests about jobs, each on its own stream. Replies are untrusted: their size is bounded here, and the code
//! that uses them checks their content.

use std::time::Duration;

use tarn_driver::GuestStream;
use tarn_link::opening::{self, Opened};
use tarn_link::{KnownJob, Purpose, Reply, ToJob};
use tarn_model::clusters::Instance;
use tarn_model::ids::{InstanceId, JobId};
use tarn_model::lifecycle::State;
use tarn_store::instances;

use crate::Control;

/// How long a guest may take to reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a guest may take to end what is left of an earlier attempt before it starts the next one.
const START_TIMEOUT: Duration = Duration::from_secs(90);

/// How long a guest may take to kill the processes of a job and to remove its directory.
const FORGET_TIMEOUT: Duration = Duration::from_secs(90);

/// How much text of a guest is passed on.
const MAX_TEXT_CHARS: usize = 300;

/// Both directions of a stream to a guest.
pub(in crate::jobs) type GuestLink = Opened<GuestStream>;

/// Why a call to a guest failed.
#[derive(Debug)]
pub(in crate::jobs) enum GuestError {
    /// The guest could not be reached, or the stream broke.
    Broken(String),
    /// The guest refused, with its reason.
    Refused(String),
    /// The guest violated the protocol.
    Fault(String),
    /// The instance has no guest that runs jobs.
    Unsupported(String),
}

impl std::fmt::Display for GuestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            GuestError::Broken(why)
            | GuestError::Refused(why)
            | GuestError::Fault(why)
            | GuestError::Unsupported(why) => f.write_str(why),
        }
    }
}

impl From<tarn_driver::Error> for GuestError {
    fn from(error: tarn_driver::Error) -> Self {
        match error {
            tarn_driver::Error::Unsupported(why) => GuestError::Unsupported(why),
            // A permanent failure of the instance soon shows in its row.
            tarn_driver::Error::Retry(why) | tarn_driver::Error::Permanent(why) => GuestError::Broken(why),
        }
    }
}

impl From<tarn_link::Error> for GuestError {
    fn from(error: tarn_link::Error) -> Self {
        match error {
            tarn_link::Error::Refused(reason) => GuestError::Refused(sanitize_guest_text(&reason)),
            tarn_link::Error::Protocol(_) => GuestError::Fault(sanitize_guest_text(&error.to_string())),
            tarn_link::Error::Stream(_) => GuestError::Broken(sanitize_guest_text(&error.to_string())),
        }
    }
}

/// Opens a stream for a purpose and returns the guest's reply.
pub(in crate::jobs) async fn open_stream(
    control: &Control,
    node: &InstanceId,
    purpose: Purpose,
) -> std::result::Result<(Reply, GuestLink), GuestError> {
    let timeout = if matches!(purpose, Purpose::RunJob(_)) { START_TIMEOUT } else { REPLY_TIMEOUT };
    open_stream_within(control, node, purpose, timeout).await
}

async fn open_stream_within(
    control: &Control,
    node: &InstanceId,
    purpose: Purpose,
    timeout: Duration,
) -> std::result::Result<(Reply, GuestLink), GuestError> {
    let opened = async {
        let stream = control.driver().connect(node).await?;
        Ok(opening::open(stream, purpose).await?)
    };
    let late = || Err(GuestError::Broken(format!("the guest did not reply within {} seconds", timeout.as_secs())));
    tokio::time::timeout(timeout, opened).await.unwrap_or_else(|_| late())
}

/// Asks a guest to end an attempt.
pub(super) async fn request_stop(
    control: &Control,
    node: &InstanceId,
    job: &JobId,
    attempt: u32,
) -> std::result::Result<(), GuestError> {
    let grace_seconds = u32::try_from(control.settings().jobs.stop_grace.as_secs()).unwrap_or(u32::MAX);
    open_stream(control, node, Purpose::StopJob { job: job.to_string(), attempt, grace_seconds }).await.map(drop)
}

/// Asks a guest to forget an attempt whose end is stored; the directory of the job stays.
pub(super) async fn dismiss_attempt(
    control: &Control,
    node: &InstanceId,
    job: &JobId,
    attempt: u32,
) -> std::result::Result<(), GuestError> {
    // No output is wanted any more.
    let purpose = Purpose::FollowJob { job: job.to_string(), attempt, offset: u64::MAX };
    let (reply, (_reader, mut writer)) = open_stream(control, node, purpose).await?;
    match reply {
        Reply::NoSuchJob => Ok(()),
        _ => match tokio::time::timeout(REPLY_TIMEOUT, writer.message(&ToJob::Done)).await {
            Ok(sent) => Ok(sent?),
            Err(_) => Err(GuestError::Broken("the guest did not accept the message".to_owned())),
        },
    }
}

/// Asks a guest to forget a job and to remove everything of it.
pub(in crate::jobs) async fn forget_job(
    control: &Control,
    node: &InstanceId,
    job: &str,
) -> std::result::Result<(), GuestError> {
    match open_stream_within(control, node, Purpose::ForgetJob { job: job.to_owned() }, FORGET_TIMEOUT).await {
        Ok(_) | Err(GuestError::Unsupported(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Lists the jobs that a guest knows.
pub(super) async fn list_known_jobs(
    control: &Control,
    node: &InstanceId,
) -> std::result::Result<Vec<KnownJob>, GuestError> {
    match open_stream(control, node, Purpose::ListJobs).await? {
        (Reply::Jobs(known), _) => Ok(known),
        (other, _) => Err(GuestError::Fault(format!("the guest replied {other:?} to a request for its jobs"))),
    }
}

/// The status of a node, according to its row.
pub(in crate::jobs) enum NodeStatus {
    /// The node should reply.
    Up(Instance),
    /// The node is expected to come back.
    Away,
    /// The node does not come back by itself. The text is a whole clause that says why.
    Gone(String),
}

/// Reads the status of a node. A node that is being destroyed still replies until it is removed.
pub(in crate::jobs) async fn read_node_status(control: &Control, node: &InstanceId, name: &str) -> NodeStatus {
    let row = match control.store().read(|tx| instances::get(tx, node)).await {
        Ok(row) => row,
        Err(error) => {
            let error: tarn_store::Error = error;
            tracing::warn!(instance = %node, %error, "the status of a node could not be read");
            return NodeStatus::Away;
        }
    };
    match row {
        None => NodeStatus::Gone(format!("node {name} is gone")),
        Some(node) => match &node.state {
            State::Running | State::Destroying => NodeStatus::Up(node),
            State::Pending | State::Provisioning | State::Configuring | State::Restarting => NodeStatus::Away,
            State::Failed { reason } => NodeStatus::Gone(format!("node {name} {reason}")),
            State::Destroyed => NodeStatus::Gone(format!("node {name} was destroyed")),
        },
    }
}

/// Makes a text of a guest safe to show.
pub(in crate::jobs) fn sanitize_guest_text(text: &str) -> String {
    tarn_base::plain(text, MAX_TEXT_CHARS).into_owned()
}
