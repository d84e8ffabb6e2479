//! `tarn job push`: uploads the files as one archive and starts the job.

use std::path::PathBuf;

use clap::Args;
use http::Method;
use serde_json::{Value, json};
use tarn_api::jobs::JobCreateRequest;

use super::{logs, pack};
use crate::commands::Context;
use crate::commands::display;
use crate::failure::{Failure, Result};
use crate::files;
use crate::files::paths;
use crate::terminal::output::{self, required_field, sanitize_line, text_field};
use crate::terminal::progress::Progress;
use crate::transport::transfers;

#[derive(Args, Debug)]
pub struct Push {
    /// The job file, such as train.tp.toml
    config: PathBuf,
    /// The cluster to run on, by ID or name
    cluster: String,
    /// Destroy the cluster after the job has ended and its outputs are saved
    #[arg(long)]
    teardown: bool,
    /// Follow the log until the job has ended
    #[arg(long)]
    listen: bool,
}

pub(crate) async fn push_job(ctx: &Context<'_>, push: Push) -> Result<()> {
    let config = files::read_text(&paths::resolve_path(ctx.environment, &push.config))?;
    let order = JobSpec {
        config,
        cluster: push.cluster,
        teardown: push.teardown,
        directory: Some(ctx.environment.directory.clone()),
    };
    let started = create_and_start_job(ctx, order).await?;
    if !push.listen {
        return display::print_body(ctx, &started, |body| {
            format!(
                "{}\nFollow its log with: tarn job listen {}",
                output::message_of(body),
                sanitize_line(text_field(body, "job_id"))
            )
        });
    }
    if !ctx.options.json {
        output::print_text(&output::message_of(&started))?;
    }
    logs::follow_and_report(ctx, required_field(&started, "job_id")?).await
}

/// A job to create.
pub(super) struct JobSpec {
    pub(super) config: String,
    pub(super) cluster: String,
    pub(super) teardown: bool,
    /// The directory to upload; nothing is uploaded when absent.
    pub(super) directory: Option<PathBuf>,
}

/// Creates a job, uploads its files, starts it, and returns the response.
pub(super) async fn create_and_start_job(ctx: &Context<'_>, order: JobSpec) -> Result<Value> {
    let patterns = pack::parse_ignore_patterns(&order.config)?;
    let body = JobCreateRequest {
        tp_config: order.config,
        cluster_id: order.cluster,
        teardown_cluster: Some(order.teardown),
        files: Some(order.directory.is_some()),
        start: Some(order.directory.is_none()),
    };
    let made = ctx.api.send_json(Method::POST, "/job/create", &body).await?;
    let Some(directory) = order.directory else { return Ok(made) };
    let job = required_field(&made, "job_id")?.to_owned();
    let uploaded = upload_files(ctx, directory, patterns, required_field(&made, "upload_url")?);
    let uploaded = tokio::select! {
        biased;
        () = ctx.interrupts.pressed() => Err(Failure::interrupted("the upload was interrupted; no job was created")),
        uploaded = uploaded => uploaded,
    };
    if let Err(failure) = uploaded {
        delete_draft_job(ctx, &job).await;
        return Err(failure);
    }
    let path = format!("/job/start/{}", paths::encode_segment(&job)?);
    match ctx.api.send_json(Method::POST, &path, &json!({})).await {
        Err(failure) if failure.body().is_some() => {
            delete_draft_job(ctx, &job).await;
            Err(failure)
        }
        // The call may have reached the engine.
        Err(failure) => {
            Err(failure.with_addition(&format!("job {job} may have been started: see `tarn job info {job}`")))
        }
        started => started,
    }
}

/// Deletes a job that was never started, instead of waiting until the engine removes it.
async fn delete_draft_job(ctx: &Context<'_>, job: &str) {
    if let Ok(job) = paths::encode_segment(job) {
        let _ = ctx.api.uninterrupted().send_empty(Method::DELETE, &format!("/job/delete/{job}")).await;
    }
}

async fn upload_files(ctx: &Context<'_>, directory: PathBuf, patterns: pack::Patterns, url: &str) -> Result<()> {
    let progress = Progress::new(ctx);
    progress.set_message("Listing files to upload");
    let listed = tokio::task::spawn_blocking(move || pack::list_files(&directory, &patterns)).await;
    let listed = listed.map_err(|e| Failure::with_cause("cannot list the files", e))??;
    if listed.has_key {
        progress.suspend(|| {
            output::print_note("Left out .env, because it holds your API key; add `!.env` to ignore to upload it.")
        });
    }
    let (total, count) = (listed.bytes, listed.entries.len());
    let (archive, packed) = pack::pack_archive(listed);
    let shown = async {
        loop {
            progress.set_message(&format!(
                "Uploading {count} files, {} of {}",
                pack::format_size(packed.bytes()),
                pack::format_size(total)
            ));
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        sent = transfers::upload_stream(&ctx.api, url, archive) => sent.map(drop).map_err(|failure| packed.failure().unwrap_or(failure)),
        never = shown => never,
    }
}
