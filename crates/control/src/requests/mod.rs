//! The nine kinds of requests, each a table of steps.
//!
//! A step first acts on the host through the driver and then commits. The commit runs in one transaction with the
//! progress of the request, guarded by the runner's lease. A step may run twice, and a step that timed out may have
//! succeeded, so its action is idempotent. The undo of a step must handle a step that happened completely, partly or
//! not at all.
//!
//! Start reading at [`Definition`], and at `clusters/claim.rs` for the longest example.

mod clusters;
pub(crate) mod deadlines;
mod start;
mod storage;

use std::future::Future;
use std::pin::Pin;

use tarn_model::Time;
use tarn_model::ids::{ClusterId, VolumeId};
use tarn_model::requests::{Request, RequestType};
use tarn_store::Tx;

use crate::{Control, Error, Result};

pub(crate) use clusters::{PULL, QUEUE_WINDOW};
pub(crate) use start::{NewRequest, end_request, start_completed, start_queued, start_request};

/// A kind of request.
pub struct Definition {
    pub kind: RequestType,
    /// The steps, in order.
    pub steps: &'static [Step],
    /// The message when the request completes.
    pub completed: &'static str,
    /// Whether its steps write notes, which are added to the final message.
    pub takes_notes: bool,
    /// Marks the object as failed, with the reason, after everything was undone. Runs in the transaction that ends the
    /// request.
    pub failed: fn(&Request, &mut Tx<'_>, &str) -> Result<()>,
}

/// A step of a request.
pub struct Step {
    /// The name in explanations and logs.
    pub name: &'static str,
    pub run: for<'a> fn(Context<'a>) -> Work<'a>,
    pub undo: Undo,
}

/// How a step is undone.
pub enum Undo {
    With(for<'a> fn(Context<'a>) -> Work<'a>),
    /// There is no undo, for this reason.
    None(&'static str),
}

/// What a step works with.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub control: &'a Control,
    pub request: &'a Request,
}

/// A running step. It acts, and returns what to commit.
pub type Work<'a> = Pin<Box<dyn Future<Output = std::result::Result<Commit, Failure>> + Send + 'a>>;

/// The changes that are committed together with the progress of the request.
pub type Commit = Box<dyn Fn(&mut Tx<'_>) -> Result<Next> + Send + Sync>;

/// How the request continues after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Done,
    /// The step is done, and the work has this deadline from now on.
    DoneUntil(Time),
    /// The step is done with this deadline, and the next step is skipped.
    SkipUntil(Time),
    /// The step has to wait and holds nothing; it runs again when the request is woken.
    Wait,
}

/// Why a step failed.
#[derive(Debug)]
pub enum Failure {
    /// A retry may succeed.
    Retry(String),
    /// No retry can succeed; everything is undone.
    Permanent(String),
}

impl From<tarn_driver::Error> for Failure {
    fn from(error: tarn_driver::Error) -> Self {
        match error {
            tarn_driver::Error::Retry(why) => Failure::Retry(why),
            tarn_driver::Error::Permanent(why) | tarn_driver::Error::Unsupported(why) => Failure::Permanent(why),
        }
    }
}

/// An error of the store may be temporary. The deadline of the request bounds the retries.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Retry(error.message)
    }
}

impl<'a> Context<'a> {
    /// Returns the cluster that the request is about.
    pub(crate) fn cluster(&self) -> &'a ClusterId {
        self.request.cluster.as_ref().expect("operations give every request of this kind a cluster")
    }

    /// Returns the volume that the request is about.
    pub(crate) fn volume(&self) -> &'a VolumeId {
        self.request.volume.as_ref().expect("operations give every request of this kind a volume")
    }
}

/// Returns the definition of a kind of request.
pub fn definition(kind: RequestType) -> &'static Definition {
    match kind {
        RequestType::ClusterClaim => &clusters::claim::DEFINITION,
        RequestType::ClusterRelease => &clusters::release::DEFINITION,
        RequestType::ClusterEdit => &clusters::edit::DEFINITION,
        RequestType::ClusterRestart => &clusters::restart::DEFINITION,
        RequestType::StorageCreate => &storage::create::DEFINITION,
        RequestType::StorageDestroy => &storage::destroy::DEFINITION,
        RequestType::StorageAttach => &storage::attach::DEFINITION,
        RequestType::StorageDetach => &storage::detach::DEFINITION,
        RequestType::StorageEdit => &storage::edit::DEFINITION,
    }
}

/// A commit that changes nothing except the progress.
fn commit_nothing() -> Commit {
    Box::new(|_| Ok(Next::Done))
}
