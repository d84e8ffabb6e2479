//! Jobs: commands that run without a connected client, whose output and outcome are kept until the engine has stored
//! them.
//!
//! Start reading at `serve_job_purpose`. `attempts` starts and follows attempts, `supervisor` is the process that runs
//! the commands of one, `files` receives the files of a job and sends its outputs, and `removal` deletes a job.
//! `registry` holds all jobs, `paths` is where they are on disk, and `helper_process` runs the helpers. This module
//! must not know why a job runs, nor whose it is.

mod attempts;
pub mod files;
mod helper_process;
mod paths;
mod registry;
pub mod removal;
pub mod supervisor;

use std::sync::Arc;

use tarn_link::{Purpose, Reader, Reply, Result, Stream, Writer};
use tokio::io::{ReadHalf, WriteHalf};

use crate::link_service::{Guest, send_refusal};
pub(crate) use registry::Jobs;

/// Serves a stream whose purpose concerns jobs.
pub(crate) async fn serve_job_purpose<S: Stream>(
    guest: &Arc<Guest>,
    purpose: Purpose,
    reader: Reader<ReadHalf<S>>,
    mut writer: Writer<WriteHalf<S>>,
) -> Result<()> {
    match purpose {
        Purpose::RunJob(order) => attempts::run::serve_run(guest, *order, reader, writer).await,
        Purpose::FollowJob { job, attempt, offset } => {
            attempts::follow::serve_follow(guest, (&job, attempt, offset), reader, writer).await
        }
        Purpose::StopJob { job, attempt, grace_seconds } => {
            request_stop(guest, &job, attempt, grace_seconds);
            writer.message(&Reply::Ready).await
        }
        Purpose::ForgetJob { job } => removal::serve_forget(guest, &job, &mut writer).await,
        Purpose::ListJobs => writer.message(&Reply::Jobs(guest.jobs.list_known())).await,
        Purpose::Outputs(order) => files::outputs::serve_outputs(guest, &order, reader, writer).await,
        _ => send_refusal(&mut writer, "that purpose does not concern jobs".into()).await,
    }
}

/// Asks an attempt to end; an attempt that has ended or is unknown is left alone.
fn request_stop(guest: &Guest, job: &str, attempt: u32, grace_seconds: u32) {
    if let Some(attempt) = guest.jobs.find_job(job).and_then(|job| job.find_attempt(attempt)) {
        attempt.requests.send_modify(|requests| {
            requests.stop = Some(requests.stop.map_or(grace_seconds, |before| before.min(grace_seconds)));
        });
    }
}
