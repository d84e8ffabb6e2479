//! Jobs: commands that run without anybody being connected, whose output and end are kept until the engine has them.
//!
//! Start reading at `serve`. `run` takes the files in (`files`, and `unpack` as the user) and starts an attempt
//! (`start`), `supervisor` is the process that runs its commands, and `keeper` the guest's side of it. `follow` tells
//! what happens, `forget` removes a job (`remove` does the work), `outputs` gives its files back (`collect` as the
//! user). On disk (`places`) lies all that must outlive the guest. It must not know why a job runs, nor whose it is.

mod attempts;
pub mod collect;
mod conversation;
mod failures;
mod files;
mod follow;
mod forget;
mod helpers;
mod keeper;
mod outputs;
mod patterns;
mod places;
mod processes;
mod registry;
pub mod remove;
mod run;
mod script;
mod start;
pub mod supervisor;
pub mod unpack;
mod walk;

use std::sync::Arc;

use tarn_link::{Answer, Purpose, Reader, Result, Stream, Writer};
use tokio::io::{ReadHalf, WriteHalf};

use crate::service::{Guest, refuse};
pub(crate) use registry::Jobs;

/// Serves a stream whose purpose is about jobs.
pub(crate) async fn serve<S: Stream>(
    guest: &Arc<Guest>,
    purpose: Purpose,
    reader: Reader<ReadHalf<S>>,
    mut writer: Writer<WriteHalf<S>>,
) -> Result<()> {
    match purpose {
        Purpose::RunJob(order) => run::serve(guest, *order, reader, writer).await,
        Purpose::FollowJob { job, attempt, offset } => {
            follow::serve(guest, (&job, attempt, offset), reader, writer).await
        }
        Purpose::StopJob { job, attempt, grace_seconds } => {
            stop(guest, &job, attempt, grace_seconds);
            writer.message(&Answer::Ready).await
        }
        Purpose::ForgetJob { job } => forget::serve(guest, &job, &mut writer).await,
        Purpose::ListJobs => writer.message(&Answer::Jobs(guest.jobs.list())).await,
        Purpose::Outputs(order) => outputs::serve(guest, &order, reader, writer).await,
        _ => refuse(&mut writer, "that is not about jobs".into()).await,
    }
}

/// Asks an attempt to end; one that has ended or is not known is left alone.
fn stop(guest: &Guest, job: &str, attempt: u32, grace_seconds: u32) {
    if let Some(attempt) = guest.jobs.find(job).and_then(|job| job.attempt(attempt)) {
        attempt.wishes.send_modify(|wishes| {
            wishes.stop = Some(wishes.stop.map_or(grace_seconds, |before| before.min(grace_seconds)));
        });
    }
}
