//! The life of one leased job, from its stored state to its end or back into the queue. A task that takes over from one
//! that died starts from the row: the guests keep whatever is not stored yet.

use tarn_model::jobs::State;

use super::leased_job::{LeasedJob, is_lease_lost};
use crate::Result;
use crate::jobs::attempt::finish::{self, AfterAttempt};
use crate::jobs::attempt::run_attempt::{EndedAttempt, run_attempt};
use crate::jobs::files::collect;

/// Runs a job until there is nothing left to do for it in this engine.
pub(super) async fn run_job(leased: LeasedJob) {
    let id = leased.job.id.clone();
    match run_job_to_end(leased).await {
        Ok(()) => {}
        // The task that holds the lease now continues the job.
        Err(error) if is_lease_lost(&error) => tracing::debug!(job = %id, "another task runs the job now"),
        Err(error) => {
            tracing::error!(job = %id, cause = ?error.cause, "a job could not continue, and is resumed later: {error}");
        }
    }
}

async fn run_job_to_end(mut leased: LeasedJob) -> Result<()> {
    match leased.job.state {
        State::Starting | State::Running | State::Stopping(_) => {
            let EndedAttempt { verdict, rest, followers } = run_attempt(&mut leased).await?;
            let next = finish::finish_attempt(&mut leased, verdict, rest).await?;
            if let AfterAttempt::Collect(_) = next {
                let collected = collect::collect_files(&leased, collect::CollectStart::First).await?;
                finish::finish_job(&mut leased, collected).await?;
            }
            followers.finish().await;
            Ok(())
        }
        State::Collecting(_) => {
            let collected = collect::collect_files(&leased, collect::CollectStart::Resumed).await?;
            finish::finish_job(&mut leased, collected).await
        }
        State::Draft | State::Pending | State::Ended(_) => Ok(()),
    }
}
