//! Waiting for a job to end, and what its end means.

use std::time::Duration;

use serde_json::Value;

use crate::commands::Context;
use crate::failure::{Failure, Result};
use crate::files::paths;
use crate::terminal::output::text_field;
use crate::terminal::progress::Progress;
use crate::transport::backoff::Backoff;

/// The pause between two calls.
const EVERY: Duration = Duration::from_millis(300);

/// Waits until a job has ended, and returns the last response about it.
pub(super) async fn wait_for_job(ctx: &Context<'_>, job: &str, progress: Progress) -> Result<Value> {
    tokio::select! {
        biased;
        () = ctx.interrupts.pressed() => {
            drop(progress);
            Err(Failure::interrupted(format!("the job continues; see `tarn job info {job}`")))
        }
        ended = poll_job(ctx, job, &progress) => ended,
    }
}

async fn poll_job(ctx: &Context<'_>, job: &str, progress: &Progress) -> Result<Value> {
    let (path, api) = (format!("/job/info/{}", paths::encode_segment(job)?), ctx.api.without_progress());
    // The engine has answered before, or the job would not be known.
    let mut backoff = Backoff::default();
    backoff.record_success();
    loop {
        match api.get(&path, &[]).await {
            Ok(body) if is_final_status(text_field(&body["job_info"], "status")) => return Ok(body),
            Ok(body) => {
                backoff.record_success();
                progress.set_message(text_field(&body["job_info"], "explanation"));
                tokio::time::sleep(EVERY).await;
            }
            Err(failure) => backoff.wait_after(failure, progress).await?,
        }
    }
}

/// Whether a job with this status has ended. An unknown status counts as not ended.
fn is_final_status(status: &str) -> bool {
    matches!(status, "completed" | "error" | "failed" | "canceled")
}

/// Fails unless the job completed.
pub(super) fn check_job_outcome(ended: &Value) -> Result<()> {
    let job = &ended["job_info"];
    match text_field(job, "status") {
        "completed" => Ok(()),
        _ => {
            let message = format!("job {}: {}", text_field(job, "id"), text_field(job, "explanation"));
            Err(Failure::new(message).with_body(ended.clone()))
        }
    }
}
