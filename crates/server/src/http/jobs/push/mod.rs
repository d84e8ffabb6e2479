//! WebSocket /job/push: the protocol of the stock client, which runs commands of the engine on its own host.
//!
//! The engine creates a draft of the job, lets the client list its directory, decides which files belong to the job,
//! lets the client pack and upload them, and starts the job. A client that disconnects or fails before that leaves no
//! job. Start reading at [`push_and_start`].

mod listing;
mod matching;
mod packing;
mod shell;
mod turns;
mod windows;

use std::pin::pin;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use tarn_control::jobs::file_lists;
use tarn_control::jobs::signed::{self, Grant};
use tarn_control::operations::jobs::{self, JobView, NewJob};
use tarn_control::{Caller, Kind};
use tarn_model::ids::JobId;

use self::matching::Patterns;
use self::packing::{Packing, file_count_text};
pub(in crate::http::jobs) use self::turns::MatchTurns;
use self::turns::Turn;
use super::creation_failure;
use super::transfer::links;
use super::websocket::socket::{Socket, SocketResult};
use super::websocket::upgrade::Upgrade;
use crate::App;
use crate::http::input::address::Address;
use crate::http::output::failure::Failure;

/// The largest frame of a client: the compressed names of a million files are smaller.
const MAX_FRAME_BYTES: usize = 16 << 20;

/// How long a client may take to send its parameters.
const PARAMETERS_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a command may run on the client, and so also how long the URL for the upload is valid.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// How often the draft is kept from being deleted while a command runs.
const KEEP_DRAFT_INTERVAL: Duration = Duration::from_secs(60);

/// The second frame of the client.
#[derive(Deserialize)]
struct PushParameters {
    tp_config: String,
    cluster_id: String,
    system: Option<String>,
    teardown_cluster: Option<bool>,
}

/// How a command ended on the client.
#[derive(Deserialize)]
struct CommandResult {
    exit_code: i64,
    #[serde(default)]
    command_stdout: String,
}

/// The shell of the client's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    /// A POSIX shell.
    Unix,
    /// `cmd.exe`.
    Windows,
}

/// Accepts a push; the client is authenticated after the upgrade.
pub(crate) async fn push_job(State(app): State<App>, address: Address, upgrade: Upgrade) -> Response {
    upgrade.accept_socket("/job/push", MAX_FRAME_BYTES, async move |mut socket| {
        let ended = push_and_start(&app, &mut socket, &address).await;
        socket.finish(ended).await;
    })
}

async fn push_and_start(app: &App, socket: &mut Socket, address: &Address) -> SocketResult<()> {
    let caller = socket.authenticate_caller(app).await?;
    let _permit = app.shared.sockets.pushes.acquire(&caller.user.owner())?;
    let held = app.control.hold_access(&caller);
    let parameters: PushParameters = held.run(socket.read_frame(PARAMETERS_TIMEOUT)).await??;
    let client = match parameters.system.as_deref() {
        Some(system) if system.eq_ignore_ascii_case("windows") => Client::Windows,
        _ => Client::Unix,
    };
    let (config, cluster, teardown) =
        (parameters.tp_config, parameters.cluster_id, parameters.teardown_cluster.unwrap_or(false));
    let new = NewJob { config, cluster, teardown, has_files: true };
    let draft = jobs::create(&app.control, &caller, new).await.map_err(creation_failure)?;
    let transferred = held.run(transfer_files(app, socket, address, client, &caller, &draft)).await;
    let started = match transferred.map_err(Into::into).flatten() {
        Ok(()) => jobs::start(&app.control, &caller, draft.job.id.as_str()).await.map_err(Into::into),
        Err(ending) => Err(ending),
    };
    if started.is_err() {
        discard_draft(app, &draft.job.id).await;
    }
    let started = started?;
    let (job, cluster) = (&started.job, started.cluster_name.as_deref().unwrap_or(started.job.cluster.as_str()));
    let message = format!(
        "Job {} ({}) was pushed to cluster {cluster}. Listen with `tp job listen {}`",
        job.id, job.name, job.id
    );
    socket.send(&json!({ "job_id": job.id.as_str(), "message": message })).await
}

async fn discard_draft(app: &App, job: &JobId) {
    if let Err(error) = jobs::discard(&app.control, job).await {
        // The reconciler deletes it after a while.
        tracing::warn!(%job, cause = %error, "the draft of a failed push could not be deleted");
    }
}

/// Lets the client upload the files of the job, if there are any.
async fn transfer_files(
    app: &App,
    socket: &mut Socket,
    address: &Address,
    client: Client,
    caller: &Caller,
    draft: &JobView,
) -> SocketResult<()> {
    let (job, ignored) = (&draft.job.id, &draft.job.config.ignore);
    let scope = draft.job.owner.scope();
    let patterns = compile_patterns(app, scope, ignored.clone()).await?;
    let cluster = draft.cluster_name.as_deref().unwrap_or(draft.job.cluster.as_str());
    let message = format!("Looking for the files of job {} for cluster {cluster}", draft.job.name);
    let command = listing::listing_command(client, ignored);
    socket.send(&json!({ "message": message, "command": command, "command_show_stdout": false })).await?;
    let listed = command_result(app, socket, caller, job, "the files of this directory could not be listed").await?;

    let (list, count) = match_files(app, scope, patterns, listed.command_stdout).await?;
    if list.is_empty() {
        socket.send(&json!({ "message": "There are no files to upload" })).await?;
        return Ok(jobs::without_files(&app.control, caller, job).await?);
    }
    file_lists::keep(&app.control, caller, job, list).await?;
    signed::record_issued(&app.control, caller, &draft.job, Grant::Upload, 2).await?;
    let list_url = links::file_list_url(&app.control, caller, address, job);
    let upload_url = links::upload_url(&app.control, caller, address, job);
    let command = packing::packing_command(client, &Packing { list_url: &list_url, upload_url: &upload_url, count });
    let message = format!("Packing {}", file_count_text(count));
    socket.send(&json!({ "message": message, "command": command, "command_show_stdout": true })).await?;
    command_result(app, socket, caller, job, "the files were not uploaded").await?;
    if let Err(error) = file_lists::forget(&app.control, job).await {
        // It is deleted with the job.
        tracing::warn!(%job, %error, "the list of the files of a job could not be deleted");
    }
    Ok(())
}

/// Returns the result of a command that succeeded. The socket is read while it runs, so that a disconnect is noticed.
async fn command_result(
    app: &App,
    socket: &mut Socket,
    caller: &Caller,
    job: &JobId,
    failed: &str,
) -> SocketResult<CommandResult> {
    let mut reading = pin!(socket.read_frame::<CommandResult>(COMMAND_TIMEOUT));
    let result = loop {
        tokio::select! {
            result = &mut reading => break result?,
            () = tokio::time::sleep(KEEP_DRAFT_INTERVAL) => keep_draft(app, caller, job).await?,
        }
    };
    match result.exit_code {
        0 => Ok(result),
        code => Err(Failure::invalid("push_failed", format!("{failed} (exit code {code}); no job was created")).into()),
    }
}

/// Keeps the draft from being deleted. A draft that is gone ends the push; a failed query does not.
async fn keep_draft(app: &App, caller: &Caller, job: &JobId) -> SocketResult<()> {
    match jobs::refresh_draft(&app.control, caller, job).await {
        Err(error) if error.kind == Kind::Unauthenticated => Err(error.into()),
        Err(error) if matches!(error.kind, Kind::NotFound | Kind::Conflict) => {
            Err(tarn_control::Error::not_found("job", job.as_str()).into())
        }
        Err(error) => {
            tracing::warn!(%job, %error, "the draft of a push could not be kept from being deleted");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Compiles the patterns of a job. Many patterns take a while, so a blocking task does it.
async fn compile_patterns(app: &App, scope: &str, lines: Vec<String>) -> SocketResult<Patterns> {
    let invalid_config = |text| creation_failure(tarn_control::Error::invalid("invalid_config", text));
    let compiled = run_matching(app, scope, move |_| Patterns::new(&lines)).await?;
    Ok(compiled.map_err(invalid_config)?)
}

/// Returns the list of the entries that belong to the job, and the number of files.
async fn match_files(app: &App, scope: &str, patterns: Patterns, listing: String) -> SocketResult<(Bytes, usize)> {
    let matching = move |turn: &mut Turn| {
        let names = listing::parse_names(&listing)?;
        let selected = patterns.select_files(names.iter(), turn)?;
        let files = selected.iter().filter(|entry| !entry.is_directory).count();
        Ok((Bytes::from(listing::render_tar_list(&selected)), files))
    };
    let matched = run_matching(app, scope, matching).await?;
    Ok(matched.map_err(|text: String| Failure::invalid("push_failed", text))?)
}

/// Runs the work of a match. It is told to end when the engine stops, and when this future is dropped.
async fn run_matching<T: Send + 'static>(
    app: &App,
    scope: &str,
    work: impl FnOnce(&mut Turn) -> T + Send + 'static,
) -> SocketResult<T> {
    tokio::select! {
        done = app.shared.sockets.matching.run(scope, work) => Ok(done.map_err(Failure::internal)?),
        () = app.stopping() => {
            let message = "the engine is stopping; push again in a moment";
            Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message).into())
        }
    }
}
