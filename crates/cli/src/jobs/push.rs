//! `tarn job push`: the files go to the engine as one archive, and no command comes back.

use std::path::PathBuf;

use clap::Args;
use http::Method;
use serde_json::{Value, json};
use tarn_api::jobs::JobCreateRequest;

use super::{logs, pack};
use crate::commands::Context;
use crate::failure::{Failure, Result};
use crate::output::{self, line, required, text};
use crate::waits::Progress;
use crate::{files, paths, show, transfers};

#[derive(Args, Debug)]
pub struct Push {
    /// The file that says what the job does, such as train.tp.toml
    config: PathBuf,
    /// The cluster that it runs on, by ID or name
    cluster: String,
    /// Destroy the cluster when the job has ended and everything is safe
    #[arg(long)]
    teardown: bool,
    /// Show what it writes until it has ended
    #[arg(long)]
    listen: bool,
}

pub(crate) async fn run(ctx: &Context<'_>, push: Push) -> Result<()> {
    let config = files::read(&paths::expand(ctx.surroundings, &push.config))?;
    let order = Order {
        config,
        cluster: push.cluster,
        teardown: push.teardown,
        directory: Some(ctx.surroundings.directory.clone()),
    };
    let started = start(ctx, order).await?;
    if !push.listen {
        return show::once(ctx, &started, |body| {
            format!("{}\nListen to it with: tarn job listen {}", output::message(body), line(text(body, "job_id")))
        });
    }
    if !ctx.options.json {
        output::print(&output::message(&started))?;
    }
    logs::listen(ctx, required(&started, "job_id")?).await
}

/// A job that is to be started.
pub(super) struct Order {
    pub(super) config: String,
    pub(super) cluster: String,
    pub(super) teardown: bool,
    /// What is uploaded; nothing without it.
    pub(super) directory: Option<PathBuf>,
}

/// Makes a job, uploads its files and starts it; what the engine says to that.
pub(super) async fn start(ctx: &Context<'_>, order: Order) -> Result<Value> {
    let patterns = pack::patterns(&order.config)?;
    let body = JobCreateRequest {
        tp_config: order.config,
        cluster_id: order.cluster,
        teardown_cluster: Some(order.teardown),
        files: Some(order.directory.is_some()),
        start: Some(order.directory.is_none()),
    };
    let made = ctx.engine.send(Method::POST, "/job/create", &body).await?;
    let Some(directory) = order.directory else { return Ok(made) };
    let job = required(&made, "job_id")?.to_owned();
    let uploaded = upload(ctx, directory, patterns, required(&made, "upload_url")?);
    let uploaded = tokio::select! {
        biased;
        () = ctx.interrupts.pressed() => Err(Failure::interrupted("the upload was interrupted, and there is no job")),
        uploaded = uploaded => uploaded,
    };
    if let Err(failure) = uploaded {
        forget(ctx, &job).await;
        return Err(failure);
    }
    let path = format!("/job/start/{}", paths::segment(&job)?);
    match ctx.engine.send(Method::POST, &path, &json!({})).await {
        Err(failure) if failure.body().is_some() => {
            forget(ctx, &job).await;
            Err(failure)
        }
        // Nobody said whether it was heard.
        Err(failure) => Err(failure.and(&format!("job {job} may have been started: see `tarn job info {job}`"))),
        started => started,
    }
}

/// Removes a job that was never started, and would go by itself after a while.
async fn forget(ctx: &Context<'_>, job: &str) {
    if let Ok(job) = paths::segment(job) {
        let _ = ctx.engine.uninterrupted().act(Method::DELETE, &format!("/job/delete/{job}")).await;
    }
}

async fn upload(ctx: &Context<'_>, directory: PathBuf, patterns: pack::Patterns, url: &str) -> Result<()> {
    let progress = Progress::new(ctx);
    progress.tell("Looks what there is to upload");
    let listed = tokio::task::spawn_blocking(move || pack::list(&directory, &patterns)).await;
    let listed = listed.map_err(|e| Failure::doing("the files could not be listed", e))??;
    if listed.has_key {
        progress
            .pause(|| output::tell("Left out .env, because your API key is in it; `!.env` in ignore takes it along."));
    }
    let (total, count) = (listed.bytes, listed.entries.len());
    let (archive, packed) = pack::pack(listed);
    let shown = async {
        loop {
            progress.tell(&format!("Uploads {count} files, {} of {}", pack::size(packed.bytes()), pack::size(total)));
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        sent = transfers::upload(&ctx.engine, url, archive) => sent.map(drop).map_err(|failure| packed.failure().unwrap_or(failure)),
        never = shown => never,
    }
}
