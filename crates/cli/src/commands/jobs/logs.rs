//! The log of a job, byte by byte, and how the job ended. After a broken connection the log continues at the same byte.
//!
//! With `--json` the job is printed on standard output as the engine describes it, and the log goes to standard error.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::Value;

use super::completion;
use crate::commands::Context;
use crate::failure::{Failure, Result};
use crate::files::paths;
use crate::terminal::output;
use crate::terminal::output::text_field;
use crate::terminal::progress::Progress;
use crate::transport::api_client::{LOG_ENDED, LOG_SIZE};
use crate::transport::backoff::Backoff;

/// How long the engine may hold a call until there is more log. The time is shorter while the log is empty, so that the
/// reason can be shown.
const WAIT_SECONDS: u32 = 20;
const LOOK_SECONDS: u32 = 2;

/// The pause after an empty response.
const PAUSE: Duration = Duration::from_millis(300);

/// Prints the log as it is now.
pub(super) async fn print_log(ctx: &Context<'_>, job: &str) -> Result<()> {
    let mut log = Log { ctx, job, offset: 0, waiting: None };
    tokio::select! {
        biased;
        () = ctx.interrupts.pressed() => return Err(Failure::interrupted("interrupted")),
        printed = log.print_more(0) => drop(printed?),
    }
    if !ctx.options.json {
        return Ok(());
    }
    output::print_json(&ctx.api.get(&format!("/job/info/{}", paths::encode_segment(job)?), &[]).await?)
}

/// Prints the log until the job has ended, and reports how it ended.
pub(super) async fn follow_and_report(ctx: &Context<'_>, job: &str) -> Result<()> {
    report_job_end(ctx, &follow_log(ctx, job).await?)
}

/// Reports how a job ended; fails unless it completed.
pub(super) fn report_job_end(ctx: &Context<'_>, ended: &Value) -> Result<()> {
    completion::check_job_outcome(ended)?;
    if ctx.options.json {
        return output::print_json(ended);
    }
    if !ctx.is_silent() {
        let job = &ended["job_info"];
        output::print_note(&format!("Job {}: {}", text_field(job, "id"), text_field(job, "explanation")));
    }
    Ok(())
}

/// Prints the log until the job has ended, and returns the last response about the job.
pub(super) async fn follow_log(ctx: &Context<'_>, job: &str) -> Result<Value> {
    tokio::select! {
        biased;
        () = ctx.interrupts.pressed() => {
            return Err(Failure::interrupted(format!("the job continues; follow it with `tarn job listen {job}`")));
        }
        printed = print_until_ended(ctx, job) => printed?,
    }
    // The job ends in a moment, and a spinner would overwrite a last line without a line feed.
    completion::wait_for_job(ctx, job, Progress::hidden()).await
}

async fn print_until_ended(ctx: &Context<'_>, job: &str) -> Result<()> {
    let (mut log, mut backoff) = (Log { ctx, job, offset: 0, waiting: None }, Backoff::default());
    loop {
        let (before, has_succeeded) = (log.offset, backoff.has_succeeded());
        // The first call does not wait, so that a wrong address fails at once.
        let wait = match (has_succeeded, log.offset) {
            (false, _) => 0,
            (true, 0) => LOOK_SECONDS,
            (true, _) => WAIT_SECONDS,
        };
        match log.print_more(wait).await {
            Ok(true) => return Ok(()),
            Ok(false) => backoff.record_success(),
            Err(failure) => {
                log.waiting = None;
                backoff.wait_after(failure, &Progress::new(ctx)).await?;
            }
        }
        if log.offset == before && has_succeeded {
            tokio::time::sleep(PAUSE).await;
        }
        if log.offset == 0 && !ctx.is_silent() {
            log.show_reason().await;
        }
    }
}

/// A log that is printed.
struct Log<'a> {
    ctx: &'a Context<'a>,
    job: &'a str,
    /// The number of bytes already printed.
    offset: u64,
    /// Shows why the log is still empty.
    waiting: Option<Progress>,
}

impl Log<'_> {
    /// Prints what is new in the log, and returns whether the log is complete.
    async fn print_more(&mut self, wait: u32) -> Result<bool> {
        let query = [("offset", self.offset.to_string()), ("wait", wait.to_string())];
        let api = &self.ctx.api;
        let mut response = api.open_log(&format!("/job/logs/{}", paths::encode_segment(self.job)?), &query).await?;
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let ended = header(LOG_ENDED).is_some_and(|ended| ended == "true");
        let size = header(LOG_SIZE).and_then(|size| size.parse::<u64>().ok());
        while let Some(data) = api.next_chunk(&mut response).await? {
            self.waiting = None;
            self.offset += data.len() as u64;
            let is_json = self.ctx.options.json;
            let written = if is_json {
                write_flushed(io::stderr().lock(), &data)
            } else {
                write_flushed(io::stdout().lock(), &data)
            };
            written.map_err(output::output_failure)?;
        }
        Ok(ended && size.is_none_or(|size| self.offset >= size))
    }

    /// Shows why the log is still empty.
    async fn show_reason(&mut self) {
        let Ok(path) = paths::encode_segment(self.job).map(|job| format!("/job/info/{job}")) else { return };
        if let Ok(body) = self.ctx.api.without_progress().get(&path, &[]).await {
            let waiting = self.waiting.get_or_insert_with(Progress::spinner);
            waiting.set_message(text_field(&body["job_info"], "explanation"));
        }
    }
}

fn write_flushed(mut to: impl Write, data: &[u8]) -> io::Result<()> {
    to.write_all(data)?;
    to.flush()
}
