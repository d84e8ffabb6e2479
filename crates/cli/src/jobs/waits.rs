//! Waiting for the end of a job.

use std::time::Duration;

use serde_json::Value;

use crate::commands::Context;
use crate::failure::{Failure, Result};
use crate::output::text;
use crate::paths;
use crate::patience::Patience;
use crate::waits::Progress;

/// How often it is looked.
const EVERY: Duration = Duration::from_millis(300);

/// Waits until a job has ended; the answer about it then.
pub(super) async fn until_ended(ctx: &Context<'_>, job: &str, progress: Progress) -> Result<Value> {
    tokio::select! {
        biased;
        () = ctx.interrupts.pressed() => {
            drop(progress);
            Err(Failure::interrupted(format!("the job goes on as it is; look at it with `tarn job info {job}`")))
        }
        ended = look_until_ended(ctx, job, &progress) => ended,
    }
}

async fn look_until_ended(ctx: &Context<'_>, job: &str, progress: &Progress) -> Result<Value> {
    let (path, engine) = (format!("/job/info/{}", paths::segment(job)?), ctx.engine.silent());
    // Whoever waits for it has heard of it from the engine.
    let mut patience = Patience::default();
    patience.worked();
    loop {
        match engine.get(&path, &[]).await {
            Ok(body) if is_over(text(&body["job_info"], "status")) => return Ok(body),
            Ok(body) => {
                patience.worked();
                progress.tell(text(&body["job_info"], "explanation"));
                tokio::time::sleep(EVERY).await;
            }
            Err(failure) => patience.bear(failure, progress).await?,
        }
    }
}

/// Whether a job has ended with this status. One that is not known yet is no end.
fn is_over(status: &str) -> bool {
    matches!(status, "completed" | "error" | "failed" | "canceled")
}

/// What the end of a job means for who waited for it.
pub(super) fn verdict(ended: &Value) -> Result<()> {
    let job = &ended["job_info"];
    match text(job, "status") {
        "completed" => Ok(()),
        _ => {
            let message = format!("job {}: {}", text(job, "id"), text(job, "explanation"));
            Err(Failure::new(message).with_body(ended.clone()))
        }
    }
}
