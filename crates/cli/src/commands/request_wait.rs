//! Waiting for a request to end. The reason why it waits is shown, and after Ctrl-C the user can wait for it again.

use std::time::Duration;

use serde_json::{Value, json};

use crate::commands::Context;
use crate::failure::{Failure, Result};
use crate::files::paths;
use crate::terminal::output::text_field;
use crate::terminal::progress::Progress;
use crate::transport::api_client::ApiClient;
use crate::transport::backoff::Backoff;

/// The pause between two calls: short at first, because most requests end soon.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// The time before the first line is printed where there is no spinner.
const QUIET: Duration = Duration::from_secs(3);

/// Waits for the end of a request that was just accepted, and returns its last body. The body of every failure has the
/// ID of the request, so that a program can wait for it again.
pub(crate) async fn wait_for_accepted_request(ctx: &Context<'_>, request: &str) -> Result<Value> {
    let mut backoff = Backoff::default();
    backoff.record_success();
    wait_for_request(ctx, request, backoff).await.map_err(|failure| match failure.body() {
        Some(_) => failure,
        None => {
            let body = json!({ "message": failure.to_string(), "request_id": request });
            failure.with_body(body)
        }
    })
}

/// Waits for the end of a request, and returns its last body.
pub(crate) async fn wait_for_request(ctx: &Context<'_>, request: &str, backoff: Backoff) -> Result<Value> {
    let (progress, api) = (Progress::new(ctx), ctx.api.without_progress());
    tokio::select! {
        biased;
        () = ctx.interrupts.pressed() => {
            let message = Some(progress.last_message()).filter(|message| !message.is_empty());
            drop(progress);
            let why = message.map(|message| format!(" ({message})")).unwrap_or_default();
            let back = format!("wait for it with `tarn request wait {request}`");
            Err(Failure::interrupted(format!("the request continues; {back}{why}")))
        }
        ended = poll_request(&api, request, backoff, &progress) => ended,
    }
}

/// Calls for a request until it has ended, and returns its last body.
pub(crate) async fn poll_request(
    api: &ApiClient,
    request: &str,
    mut backoff: Backoff,
    progress: &Progress,
) -> Result<Value> {
    let (mut pause, mut waited, mut said) = (FIRST_PAUSE, Duration::ZERO, String::new());
    let path = format!("/request/info/{}", paths::encode_segment(request)?);
    loop {
        let body = match api.get(&path, &[]).await {
            Ok(body) => body,
            Err(failure) => {
                backoff.wait_after(failure, progress).await?;
                continue;
            }
        };
        backoff.record_success();
        match text_field(&body, "status") {
            "COMPLETED" => return Ok(body),
            "FAILED" => {
                let why = text_field(&body, "message");
                let why = if why.is_empty() { "the request failed, and the engine gave no reason" } else { why };
                return Err(Failure::new(why.to_owned()).with_body(body));
            }
            status => {
                let why = text_field(&body, "message");
                progress.set_message(why);
                if status == "PENDING" && waited >= QUIET && said != why {
                    progress.log_line(why);
                    said = why.to_owned();
                }
            }
        }
        tokio::time::sleep(pause).await;
        waited += pause;
        pause = (pause * 3 / 2).min(MAX_PAUSE);
    }
}
