//! What is asked of the guests about jobs, each on a stream of its own. What they answer is untrusted: it is bounded here, and
//! checked by whoever uses it.

use std::time::Duration;

use tarn_driver::GuestStream;
use tarn_link::opening::{self, Opened};
use tarn_link::{Answer, KnownJob, Purpose, ToJob};
use tarn_model::clusters::Instance;
use tarn_model::ids::{InstanceId, JobId};
use tarn_model::lifecycle::State;
use tarn_store::instances;

use crate::Control;

/// How long a guest may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long it may take to end what is left of an earlier attempt before the next one begins.
const STARTING: Duration = Duration::from_secs(90);

/// How long it may take to kill what is left of a job and to remove its directory.
const FORGETTING: Duration = Duration::from_secs(90);

/// As much of a guest's words as is passed on.
const MAX_WORDS: usize = 300;

/// Both directions of a stream to a guest.
pub(super) type Link = Opened<GuestStream>;

/// Why a guest did not do what it was asked.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It could not be reached, or broke off.
    Broken(String),
    /// It does not want to, and says why.
    Refused(String),
    /// What it says makes no sense.
    Fault(String),
    /// There is no guest that could ever be asked.
    Impossible(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Broken(why) | Trouble::Refused(why) | Trouble::Fault(why) | Trouble::Impossible(why) => {
                f.write_str(why)
            }
        }
    }
}

impl From<tarn_driver::Error> for Trouble {
    fn from(error: tarn_driver::Error) -> Self {
        match error {
            tarn_driver::Error::Unsupported(why) => Trouble::Impossible(why),
            // What the driver finds of an instance shows in its row soon.
            tarn_driver::Error::Retry(why) | tarn_driver::Error::Permanent(why) => Trouble::Broken(why),
        }
    }
}

impl From<tarn_link::Error> for Trouble {
    fn from(error: tarn_link::Error) -> Self {
        match error {
            tarn_link::Error::Refused(reason) => Trouble::Refused(plain(&reason)),
            tarn_link::Error::Protocol(_) => Trouble::Fault(plain(&error.to_string())),
            tarn_link::Error::Stream(_) => Trouble::Broken(plain(&error.to_string())),
        }
    }
}

/// Opens a stream for a purpose and returns the guest's answer.
pub(super) async fn open(
    control: &Control,
    node: &InstanceId,
    purpose: Purpose,
) -> std::result::Result<(Answer, Link), Trouble> {
    let patience = if matches!(purpose, Purpose::RunJob(_)) { STARTING } else { PATIENCE };
    open_within(control, node, purpose, patience).await
}

async fn open_within(
    control: &Control,
    node: &InstanceId,
    purpose: Purpose,
    patience: Duration,
) -> std::result::Result<(Answer, Link), Trouble> {
    let opened = async {
        let stream = control.driver().connect(node).await?;
        Ok(opening::open(stream, purpose).await?)
    };
    let late = || Err(Trouble::Broken(format!("it did not answer within {} seconds", patience.as_secs())));
    tokio::time::timeout(patience, opened).await.unwrap_or_else(|_| late())
}

/// Asks an attempt to end.
pub(super) async fn stop(
    control: &Control,
    node: &InstanceId,
    job: &JobId,
    attempt: u32,
) -> std::result::Result<(), Trouble> {
    let grace_seconds = u32::try_from(control.settings().jobs.stop_grace.as_secs()).unwrap_or(u32::MAX);
    open(control, node, Purpose::StopJob { job: job.to_string(), attempt, grace_seconds }).await.map(drop)
}

/// Lets a guest forget an attempt whose end is written down; the directory of the job stays.
pub(super) async fn dismiss(
    control: &Control,
    node: &InstanceId,
    job: &JobId,
    attempt: u32,
) -> std::result::Result<(), Trouble> {
    // Nothing of its output is wanted any more.
    let purpose = Purpose::FollowJob { job: job.to_string(), attempt, offset: u64::MAX };
    let (answer, (_reader, mut writer)) = open(control, node, purpose).await?;
    match answer {
        Answer::NoSuchJob => Ok(()),
        _ => match tokio::time::timeout(PATIENCE, writer.message(&ToJob::Done)).await {
            Ok(said) => Ok(said?),
            Err(_) => Err(Trouble::Broken("it did not listen".to_owned())),
        },
    }
}

/// Lets a guest forget a job with everything of it.
pub(super) async fn forget(control: &Control, node: &InstanceId, job: &str) -> std::result::Result<(), Trouble> {
    match open_within(control, node, Purpose::ForgetJob { job: job.to_owned() }, FORGETTING).await {
        Ok(_) | Err(Trouble::Impossible(_)) => Ok(()),
        Err(trouble) => Err(trouble),
    }
}

/// The jobs that a guest knows.
pub(super) async fn known(control: &Control, node: &InstanceId) -> std::result::Result<Vec<KnownJob>, Trouble> {
    match open(control, node, Purpose::ListJobs).await? {
        (Answer::Jobs(known), _) => Ok(known),
        (other, _) => Err(Trouble::Fault(format!("it answered {other:?} to a question about its jobs"))),
    }
}

/// How a node is, by its row.
pub(super) enum Sight {
    /// It should answer.
    There(Instance),
    /// It comes back.
    Away,
    /// It does not come back by itself: why, as a whole clause.
    Gone(String),
}

/// Looks at the row of a node. One that is being destroyed still answers until it is removed.
pub(super) async fn look(control: &Control, node: &InstanceId, name: &str) -> Sight {
    let row = match control.store().read(|tx| instances::get(tx, node)).await {
        Ok(row) => row,
        Err(error) => {
            let error: tarn_store::Error = error;
            tracing::warn!(instance = %node, %error, "the database does not say how a node is");
            return Sight::Away;
        }
    };
    match row {
        None => Sight::Gone(format!("node {name} is gone")),
        Some(node) => match &node.state {
            State::Running | State::Destroying => Sight::There(node),
            State::Pending | State::Provisioning | State::Configuring | State::Restarting => Sight::Away,
            State::Failed { reason } => Sight::Gone(format!("node {name} {reason}")),
            State::Destroyed => Sight::Gone(format!("node {name} was destroyed")),
        },
    }
}

/// A guest may say anything: only so much is passed on, and nothing that could play with a terminal.
pub(super) fn plain(words: &str) -> String {
    words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_WORDS).collect()
}
