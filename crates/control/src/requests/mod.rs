//! The nine kinds of requests, each a table of steps.
//!
//! A step first acts on the world through the driver and then commits: the commit runs in one transaction with the progress
//! of the request, guarded by the runner's lease. A step may run twice, and one that timed out may have succeeded, so its
//! act is idempotent. The undo of a step must cope with one that happened wholly, partly or not at all.

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

pub(crate) use clusters::{LINE_WINDOW, PULL};
pub(crate) use start::{NewRequest, end_request, start_completed, start_in_line, start_request};

/// One kind of request.
pub struct Definition {
    /// Which.
    pub kind: RequestType,
    /// What is done, in order.
    pub steps: &'static [Step],
    /// What the caller is told in the end.
    pub completed: &'static str,
    /// Whether its steps write notes, which the caller is told besides, however it ends.
    pub takes_notes: bool,
    /// Marks the object after everything was undone, with the reason. Runs in the transaction that ends the request.
    pub failed: fn(&Request, &mut Tx<'_>, &str) -> Result<()>,
}

/// One step of a request.
pub struct Step {
    /// Its name in explanations and logs.
    pub name: &'static str,
    /// Does it.
    pub run: for<'a> fn(Context<'a>) -> Work<'a>,
    /// Takes it back.
    pub undo: Undo,
}

/// How a step is taken back.
pub enum Undo {
    /// By this.
    With(for<'a> fn(Context<'a>) -> Work<'a>),
    /// Not at all, for the reason given.
    None(&'static str),
}

/// What a step works with.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The control plane.
    pub control: &'a Control,
    /// The request.
    pub request: &'a Request,
}

/// A step under way: acts, and returns what to commit.
pub type Work<'a> = Pin<Box<dyn Future<Output = std::result::Result<Commit, Failure>> + Send + 'a>>;

/// What is committed together with the progress of the request.
pub type Commit = Box<dyn Fn(&mut Tx<'_>) -> Result<Next> + Send + Sync>;

/// How it goes on after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The step is done.
    Done,
    /// The step is done, and from now on the work has this deadline.
    DoneUntil(Time),
    /// The same, and there is nothing to do for the step after it either.
    SkipUntil(Time),
    /// The step has to wait, holding nothing; it is tried again when something wakes it.
    Wait,
}

/// Why a step did not work.
#[derive(Debug)]
pub enum Failure {
    /// It may work when tried again.
    Retry(String),
    /// It will not work; everything is undone.
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

/// What the store could not do now it may do later; the runner's deadline bounds how often that is tried.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Retry(error.message)
    }
}

impl<'a> Context<'a> {
    /// The cluster that the request is about.
    pub(crate) fn cluster(&self) -> &'a ClusterId {
        self.request.cluster.as_ref().expect("operations give every request of this kind a cluster")
    }

    /// The volume that the request is about.
    pub(crate) fn volume(&self) -> &'a VolumeId {
        self.request.volume.as_ref().expect("operations give every request of this kind a volume")
    }
}

/// The table of a kind of request.
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

/// A commit with nothing to add to the progress.
fn commit_nothing() -> Commit {
    Box::new(|_| Ok(Next::Done))
}
