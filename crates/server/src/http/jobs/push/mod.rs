//! WebSocket /job/push: the protocol of the stock client, which runs on its machine what the engine tells it to.
//!
//! The engine makes a job that waits for its files, has the client list what is in its directory, decides which of that belongs
//! to the job, has the client pack and upload it, and starts the job. Until then, a client that goes or fails takes the job
//! with it. Start reading at [`talk`].

mod listing;
mod matching;
mod packing;
mod shell;
mod windows;

use std::pin::pin;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use tarn_control::Kind;
use tarn_control::jobs::file_lists;
use tarn_control::operations::jobs::{self, JobView, NewJob};
use tarn_model::ids::JobId;

use self::matching::Patterns;
use self::packing::{Packing, files};
use super::socket::{Socket, Talk};
use super::upgrade::Upgrade;
use super::{links, refused};
use crate::App;
use crate::http::address::Address;
use crate::http::failure::Failure;

/// What a client may say in one frame: the names of a million files, packed, are below this.
const MAX_FRAME: usize = 16 << 20;

/// How long a client may take to say what it wants.
const WISH_PATIENCE: Duration = Duration::from_secs(30);

/// How long a command may run on the client; so long the URL for the upload is good.
const COMMAND_PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// So often a job is kept from being forgotten while a command runs.
const STAY: Duration = Duration::from_secs(60);

/// What the client wants run. It says this in its second frame.
#[derive(Deserialize)]
struct Wish {
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

/// What the client's machine understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    /// A POSIX shell.
    Unix,
    /// `cmd.exe`.
    Windows,
}

/// Accepts whoever wants to push; who it is comes after that.
pub(crate) async fn push(State(app): State<App>, address: Address, upgrade: Upgrade) -> Response {
    upgrade.open("/job/push", MAX_FRAME, async move |mut socket| {
        let ended = talk(&app, &mut socket, &address).await;
        socket.end(ended).await;
    })
}

async fn talk(app: &App, socket: &mut Socket, address: &Address) -> Talk<()> {
    let caller = socket.caller(app).await?;
    let _place = app.shared.sockets.pushes.take(&caller.user.id)?;
    let wish: Wish = socket.read(WISH_PATIENCE).await?;
    let client = match wish.system.as_deref() {
        Some(system) if system.eq_ignore_ascii_case("windows") => Client::Windows,
        _ => Client::Unix,
    };
    let (config, cluster, teardown) = (wish.tp_config, wish.cluster_id, wish.teardown_cluster.unwrap_or(false));
    let new = NewJob { config, cluster, teardown, has_files: true };
    let draft = jobs::create(&app.control, &caller, new).await.map_err(refused)?;
    let started = match take_files(app, socket, address, client, &draft).await {
        Ok(()) => jobs::start(&app.control, &caller, draft.job.id.as_str()).await.map_err(Into::into),
        Err(ending) => Err(ending),
    };
    if started.is_err() {
        forget(app, &draft.job.id).await;
    }
    let started = started?;
    let (job, cluster) = (&started.job, started.cluster_name.as_deref().unwrap_or(started.job.cluster.as_str()));
    let message = format!(
        "Job {} ({}) was pushed to cluster {cluster}. Listen with `tp job listen {}`",
        job.id, job.name, job.id
    );
    socket.send(&json!({ "job_id": job.id.as_str(), "message": message })).await
}

async fn forget(app: &App, job: &JobId) {
    if let Err(error) = jobs::discard(&app.control, job).await {
        // It is forgotten by itself after a while.
        tracing::warn!(%job, cause = %error, "a job that was not pushed to its end could not be forgotten");
    }
}

/// Has the client upload the files of the job, if there are any.
async fn take_files(app: &App, socket: &mut Socket, address: &Address, client: Client, draft: &JobView) -> Talk<()> {
    let (job, ignored) = (&draft.job.id, &draft.job.config.ignore);
    let wrong = |text| refused(tarn_control::Error::invalid("invalid_config", text));
    let patterns = Patterns::new(ignored).map_err(wrong)?;
    let cluster = draft.cluster_name.as_deref().unwrap_or(draft.job.cluster.as_str());
    let message = format!("Looking for the files of job {} for cluster {cluster}", draft.job.name);
    let command = listing::command(client, ignored);
    socket.send(&json!({ "message": message, "command": command, "command_show_stdout": false })).await?;
    let listed = result(app, socket, job, "the files of this directory could not be listed").await?;

    let (list, count) = matched(app, patterns, listed.command_stdout).await?;
    if list.is_empty() {
        socket.send(&json!({ "message": "There are no files to upload" })).await?;
        return Ok(jobs::without_files(&app.control, job).await?);
    }
    file_lists::keep(&app.control, job, list).await?;
    let (list_url, upload_url) = (links::files(&app.control, address, job), links::upload(&app.control, address, job));
    let command = packing::command(client, &Packing { list_url: &list_url, upload_url: &upload_url, count });
    let message = format!("Packing {}", files(count));
    socket.send(&json!({ "message": message, "command": command, "command_show_stdout": true })).await?;
    result(app, socket, job, "the files were not uploaded").await?;
    if let Err(error) = file_lists::forget(&app.control, job).await {
        // It goes with the job.
        tracing::warn!(%job, %error, "the list of the files of a job could not be forgotten");
    }
    Ok(())
}

/// What a command gave, if it ended well. While it runs, the socket is read: so a client that goes is noticed.
async fn result(app: &App, socket: &mut Socket, job: &JobId, failed: &str) -> Talk<CommandResult> {
    let mut reading = pin!(socket.read::<CommandResult>(COMMAND_PATIENCE));
    let result = loop {
        tokio::select! {
            result = &mut reading => break result?,
            () = tokio::time::sleep(STAY) => stay(app, job).await?,
        }
    };
    match result.exit_code {
        0 => Ok(result),
        code => Err(Failure::invalid("push_failed", format!("{failed} (exit code {code}); no job was made")).into()),
    }
}

/// Keeps a job from being forgotten. One that is gone ends the push; a database that cannot say so now does not.
async fn stay(app: &App, job: &JobId) -> Talk<()> {
    match jobs::refresh_draft(&app.control, job).await {
        Err(error) if matches!(error.kind, Kind::NotFound | Kind::Conflict) => {
            Err(tarn_control::Error::not_found("job", job.as_str()).into())
        }
        Err(error) => {
            tracing::warn!(%job, %error, "a job that is being pushed could not be kept from being forgotten");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// The list of what belongs to the job, and how many files that are. Lists are long, so this happens aside.
async fn matched(app: &App, patterns: Patterns, listing: String) -> Talk<(Bytes, usize)> {
    let _turn = app.shared.sockets.matching.acquire().await.map_err(Failure::internal)?;
    let matching = tokio::task::spawn_blocking(move || {
        let names = listing::names(&listing)?;
        let kept = patterns.kept(names.iter())?;
        let files = kept.iter().filter(|entry| !entry.is_directory).count();
        Ok((Bytes::from(listing::list(&kept)), files))
    });
    let matched: Result<_, String> = matching.await.map_err(Failure::internal)?;
    Ok(matched.map_err(|text| Failure::invalid("push_failed", text))?)
}
