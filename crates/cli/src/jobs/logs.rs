//! What a job writes, byte by byte, and how it ends. A connection that breaks is made again, from the byte where it broke.
//!
//! A program that wants JSON gets the job as the engine describes it; what the job writes goes beside it, to standard error.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::Value;

use super::waits;
use crate::commands::Context;
use crate::engine::{LOG_ENDED, LOG_SIZE};
use crate::failure::{Failure, Result};
use crate::output::text;
use crate::patience::Patience;
use crate::waits::Progress;
use crate::{output, paths};

/// How long the engine may wait for more before it answers that there is none; shorter as long as there is nothing, so that it can
/// be told why.
const WAIT_SECONDS: u32 = 20;
const LOOK_SECONDS: u32 = 2;

/// How long it is waited where the engine does not.
const PAUSE: Duration = Duration::from_millis(300);

/// Prints what there is.
pub(super) async fn print(ctx: &Context<'_>, job: &str) -> Result<()> {
    let mut log = Log { ctx, job, offset: 0, waiting: None };
    tokio::select! {
        biased;
        () = ctx.interrupts.pressed() => return Err(Failure::interrupted("interrupted")),
        printed = log.print(0) => drop(printed?),
    }
    if !ctx.options.json {
        return Ok(());
    }
    output::print_json(&ctx.engine.get(&format!("/job/info/{}", paths::segment(job)?), &[]).await?)
}

/// Prints everything until the job has ended, and says what that end means.
pub(super) async fn listen(ctx: &Context<'_>, job: &str) -> Result<()> {
    conclude(ctx, &follow(ctx, job).await?)
}

/// What the end of a job means for who waited for it.
pub(super) fn conclude(ctx: &Context<'_>, ended: &Value) -> Result<()> {
    waits::verdict(ended)?;
    if ctx.options.json {
        return output::print_json(ended);
    }
    if !ctx.is_silent() {
        let job = &ended["job_info"];
        output::tell(&format!("Job {}: {}", text(job, "id"), text(job, "explanation")));
    }
    Ok(())
}

/// Prints everything until the job has ended; the answer about it then.
pub(super) async fn follow(ctx: &Context<'_>, job: &str) -> Result<Value> {
    tokio::select! {
        biased;
        () = ctx.interrupts.pressed() => {
            return Err(Failure::interrupted(format!("the job goes on; listen again with `tarn job listen {job}`")));
        }
        printed = print_all(ctx, job) => printed?,
    }
    // It is a matter of moments now, and the last line of the log may have no end that something could be told behind.
    waits::until_ended(ctx, job, Progress::hidden()).await
}

async fn print_all(ctx: &Context<'_>, job: &str) -> Result<()> {
    let (mut log, mut patience) = (Log { ctx, job, offset: 0, waiting: None }, Patience::default());
    loop {
        let (before, has_worked) = (log.offset, patience.has_worked());
        // The first answer comes at once, whatever there is: then it is known that there is somebody to wait for.
        let wait = match (has_worked, log.offset) {
            (false, _) => 0,
            (true, 0) => LOOK_SECONDS,
            (true, _) => WAIT_SECONDS,
        };
        match log.print(wait).await {
            Ok(true) => return Ok(()),
            Ok(false) => patience.worked(),
            Err(failure) => {
                log.waiting = None;
                patience.bear(failure, &Progress::new(ctx)).await?;
            }
        }
        if log.offset == before && has_worked {
            tokio::time::sleep(PAUSE).await;
        }
        if log.offset == 0 && !ctx.is_silent() {
            log.tell().await;
        }
    }
}

/// A log that is being printed.
struct Log<'a> {
    ctx: &'a Context<'a>,
    job: &'a str,
    /// How much of it is printed.
    offset: u64,
    /// What is told as long as there is nothing.
    waiting: Option<Progress>,
}

impl Log<'_> {
    /// Prints what there is more of it; whether that is all there will ever be.
    async fn print(&mut self, wait: u32) -> Result<bool> {
        let query = [("offset", self.offset.to_string()), ("wait", wait.to_string())];
        let engine = &self.ctx.engine;
        let mut answer = engine.open_log(&format!("/job/logs/{}", paths::segment(self.job)?), &query).await?;
        let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let ended = header(LOG_ENDED).is_some_and(|ended| ended == "true");
        let size = header(LOG_SIZE).and_then(|size| size.parse::<u64>().ok());
        while let Some(data) = engine.next(&mut answer).await? {
            self.waiting = None;
            self.offset += data.len() as u64;
            let is_json = self.ctx.options.json;
            let written = if is_json { write(io::stderr().lock(), &data) } else { write(io::stdout().lock(), &data) };
            written.map_err(output::unwritten)?;
        }
        Ok(ended && size.is_none_or(|size| self.offset >= size))
    }

    /// Tells why there is nothing yet.
    async fn tell(&mut self) {
        let Ok(path) = paths::segment(self.job).map(|job| format!("/job/info/{job}")) else { return };
        if let Ok(body) = self.ctx.engine.silent().get(&path, &[]).await {
            let waiting = self.waiting.get_or_insert_with(Progress::shown);
            waiting.tell(text(&body["job_info"], "explanation"));
        }
    }
}

fn write(mut to: impl Write, data: &[u8]) -> io::Result<()> {
    to.write_all(data)?;
    to.flush()
}
