//! Waiting for a request: what it waits for is shown, and whoever does not want to wait any longer can come back to it.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::commands::Context;
use crate::engine::Engine;
use crate::failure::{Failure, Result};
use crate::output::{line, tell, text};
use crate::paths;
use crate::patience::Patience;

/// How long it is waited between two looks: short at first, because most of it is soon done.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// How long it is waited before something is said where no line can change.
const QUIET: Duration = Duration::from_secs(3);

/// Something that is told while it takes time: a line that changes for a person, and where nobody looks only what a log should have.
pub(crate) struct Progress {
    bar: ProgressBar,
    has_log: bool,
}

impl Progress {
    /// For nobody.
    pub(crate) fn hidden() -> Progress {
        Progress { bar: ProgressBar::hidden(), has_log: false }
    }

    /// Nothing is told yet.
    pub(crate) fn new(ctx: &Context<'_>) -> Progress {
        match ctx.is_silent() {
            true => Progress { bar: ProgressBar::hidden(), has_log: !ctx.options.json },
            false => Progress::shown(),
        }
    }

    /// For the person at the terminal.
    pub(crate) fn shown() -> Progress {
        let style = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = ProgressBar::new_spinner().with_style(style);
        bar.enable_steady_tick(Duration::from_millis(100));
        Progress { bar, has_log: false }
    }

    /// Says something beside it.
    pub(crate) fn pause(&self, say: impl FnOnce()) {
        self.bar.suspend(say);
    }

    /// Tells what it is now.
    pub(crate) fn tell(&self, message: &str) {
        self.bar.set_message(line(message));
    }

    /// Says something that is worth a line where none can change.
    fn log(&self, message: &str) {
        if self.has_log {
            tell(message);
        }
    }

    /// What was told last.
    fn told(&self) -> String {
        self.bar.message()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Waits for the end of a request that was just accepted; its last body. Whatever happens, a program learns which one it was.
pub(crate) async fn wait_for_accepted(ctx: &Context<'_>, request: &str) -> Result<Value> {
    let mut patience = Patience::default();
    patience.worked();
    wait(ctx, request, patience).await.map_err(|failure| match failure.body() {
        Some(_) => failure,
        None => {
            let body = json!({ "message": failure.to_string(), "request_id": request });
            failure.with_body(body)
        }
    })
}

/// Waits for the end of a request; its last body.
pub(crate) async fn wait(ctx: &Context<'_>, request: &str, patience: Patience) -> Result<Value> {
    let (progress, engine) = (Progress::new(ctx), ctx.engine.silent());
    tokio::select! {
        biased;
        () = ctx.interrupts.pressed() => {
            let told = Some(progress.told()).filter(|told| !told.is_empty());
            drop(progress);
            let why = told.map(|told| format!(" ({told})")).unwrap_or_default();
            let back = format!("wait for it again with `tarn request wait {request}`");
            Err(Failure::interrupted(format!("it goes on without you; {back}{why}")))
        }
        ended = until_ended(&engine, request, patience, &progress) => ended,
    }
}

/// The same, whatever else happens.
pub(crate) async fn until_ended(
    engine: &Engine,
    request: &str,
    mut patience: Patience,
    progress: &Progress,
) -> Result<Value> {
    let (mut pause, mut waited, mut said) = (FIRST_PAUSE, Duration::ZERO, String::new());
    let path = format!("/request/info/{}", paths::segment(request)?);
    loop {
        let body = match engine.get(&path, &[]).await {
            Ok(body) => body,
            Err(failure) => {
                patience.bear(failure, progress).await?;
                continue;
            }
        };
        patience.worked();
        match text(&body, "status") {
            "COMPLETED" => return Ok(body),
            "FAILED" => {
                let why = text(&body, "message");
                let why = if why.is_empty() { "it failed, and the engine does not say why" } else { why };
                return Err(Failure::new(why.to_owned()).with_body(body));
            }
            status => {
                let why = text(&body, "message");
                progress.tell(why);
                if status == "PENDING" && waited >= QUIET && said != why {
                    progress.log(why);
                    said = why.to_owned();
                }
            }
        }
        tokio::time::sleep(pause).await;
        waited += pause;
        pause = (pause * 3 / 2).min(MAX_PAUSE);
    }
}
