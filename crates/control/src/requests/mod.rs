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
use tarn_model::requests::{Progress, Request, RequestKind};
use tarn_store::Tx;

use crate::{Control, Error, Result};

pub(crate) use clusters::{PULL, line};
pub(crate) use start::{end_request, start_completed, start_queued, start_request};

/// A kind of request, with the objects of one request.
pub struct Definition<'a> {
    /// The steps, in order.
    pub steps: Vec<Step<'a>>,
    /// The message when the request completes.
    pub completed: &'static str,
    /// Whether its steps write notes, which are added to the final message.
    pub takes_notes: bool,
}

/// A step of a request.
pub struct Step<'a> {
    /// The name in explanations and logs.
    pub name: &'static str,
    pub run: Act<'a>,
    pub undo: Undo<'a>,
}

/// How a step is undone.
pub enum Undo<'a> {
    With(Act<'a>),
    /// There is no undo, for this reason.
    None(&'static str),
}

/// What a step works with, beside its objects.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub control: &'a Control,
    pub request: &'a Request,
}

/// Acts, and returns what to commit.
pub type Act<'a> = Box<dyn Fn(Context<'a>) -> RunningStep<'a> + Send + Sync + 'a>;

/// A running step.
pub type RunningStep<'a> = Pin<Box<dyn Future<Output = StepResult> + Send + 'a>>;

/// What a step returns after it has acted.
pub type StepResult<T = Commit> = std::result::Result<T, Failure>;

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
    /// The step has to wait and holds nothing; it runs again when the request is woken, and at this time.
    Wait {
        until: Option<Time>,
    },
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

impl<'a> Definition<'a> {
    /// Returns the step with this number. A number beyond the last step is of an older version, which had one more step
    /// that only committed: now the last step commits, and runs or is undone again.
    pub(crate) fn step_at(&self, number: u32) -> Option<&Step<'a>> {
        self.steps.get(number as usize).or(self.steps.last())
    }
}

/// Returns the definition of a kind of request.
pub fn definition(kind: &RequestKind) -> Definition<'_> {
    match kind {
        RequestKind::ClaimCluster(cluster) => clusters::claim::definition(cluster),
        RequestKind::ReleaseCluster(cluster) => clusters::release::definition(cluster),
        // The transaction that accepts the call changes name and protection.
        RequestKind::EditCluster(_) => {
            Definition { steps: Vec::new(), completed: "The cluster was changed.", takes_notes: false }
        }
        RequestKind::RestartCluster(cluster) => clusters::restart::definition(cluster),
        RequestKind::CreateStorage(volume) => storage::create::definition(volume),
        RequestKind::DestroyStorage(volume) => storage::destroy::definition(volume),
        RequestKind::AttachStorage(change) => storage::attach::definition(change),
        RequestKind::DetachStorage(change) => storage::detach::definition(change),
        RequestKind::EditStorage(volume) => storage::edit::definition(volume),
    }
}

/// Returns whether the next step of a request pulls an image.
pub(crate) fn pulls_image(request: &Request) -> bool {
    let step = definition(&request.kind).step_at(request.progress.step()).map(|step| step.name);
    matches!(request.progress, Progress::Forward { .. }) && step == Some(PULL)
}

/// Marks the object of a request as failed, after everything was undone or the undo was abandoned. Runs in the
/// transaction that ends the request.
pub(crate) fn fail_object(tx: &mut Tx<'_>, kind: &RequestKind, undone: bool, reason: &str) -> Result<()> {
    match kind {
        RequestKind::ClaimCluster(cluster) => clusters::nodes::fail_cluster(tx, cluster, reason),
        RequestKind::ReleaseCluster(cluster) => clusters::release::fail_release(tx, cluster, reason),
        RequestKind::EditCluster(_) => Ok(()),
        RequestKind::RestartCluster(cluster) => clusters::restart::fail_restart(tx, cluster, reason),
        RequestKind::CreateStorage(volume) => storage::create::fail_creation(tx, volume, undone, reason),
        RequestKind::DestroyStorage(volume) => storage::destroy::fail_destruction(tx, volume, reason),
        RequestKind::AttachStorage(change) => storage::attach::fail_attach(tx, change, undone, reason),
        RequestKind::DetachStorage(change) => storage::detach::fail_detach(tx, change, undone, reason),
        RequestKind::EditStorage(volume) => storage::edit::end_resize(tx, volume, None).map(drop),
    }
}

fn step<'a>(name: &'static str, run: Act<'a>, undo: Undo<'a>) -> Step<'a> {
    Step { name, run, undo }
}

/// Makes the act of a step of an asynchronous function and the object that it works on.
fn act<'a, T: Sync, F>(object: &'a T, function: impl Fn(Context<'a>, &'a T) -> F + Send + Sync + 'a) -> Act<'a>
where
    F: Future<Output = StepResult> + Send + 'a,
{
    Box::new(move |ctx| Box::pin(function(ctx, object)))
}

/// The end of a step whose result is committed.
fn commit(changes: impl Fn(&mut Tx<'_>) -> Result<Next> + Send + Sync + 'static) -> StepResult {
    Ok(Box::new(changes))
}

/// The end of a step that commits nothing except the progress.
fn commit_nothing() -> StepResult {
    commit(|_| Ok(Next::Done))
}
