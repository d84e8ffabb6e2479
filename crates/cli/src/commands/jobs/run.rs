//! `tarn job run`: creates a cluster, runs a job on it, shows the log, fetches the outputs, and destroys the cluster.

use std::path::PathBuf;

use clap::Args;
use http::Method;
use serde_json::json;

use super::push::{self, JobSpec};
use super::{logs, pull};
use crate::commands::Context;
use crate::commands::request_wait;
use crate::failure::{ExitCodes, Failure, Result};
use crate::files::paths;
use crate::terminal::output::{self, required_field, text_field};
use crate::terminal::progress::Progress;
use crate::transport::backoff::Backoff;

#[derive(Args, Debug)]
pub struct Run {
    /// The command, as you would type it in a shell
    command: String,
    /// The instance type
    #[arg(long, value_name = "TYPE")]
    on: String,
    /// The number of instances; the command runs on all of them
    #[arg(short, long, value_name = "NUMBER", default_value_t = 1)]
    num_nodes: u32,
    /// The container image of the instances, such as `debian:12` [default: the built-in image]
    #[arg(long, value_name = "IMAGE")]
    container: Option<String>,
    /// A directory to upload and run in; nothing is uploaded when absent
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
    /// Outputs to keep, as globs; they are fetched into the current directory
    #[arg(long, value_name = "GLOB")]
    output: Vec<String>,
    /// Stop the job after this time, such as 90s, 30m or 2h
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// Let outputs overwrite existing files
    #[arg(long)]
    force: bool,
    /// Keep the cluster after the job has ended
    #[arg(long)]
    keep: bool,
}

pub(crate) async fn run_on_new_cluster(ctx: &Context<'_>, run: Run) -> Result<()> {
    // Mistakes on the command line are reported before the cluster costs anything.
    let directory = run.dir.as_ref().map(|path| paths::resolve_path(ctx.environment, path));
    if let Some(missing) = directory.as_ref().filter(|path| !path.is_dir()) {
        return Err(Failure::usage(format!("{} is not a directory", missing.display())));
    }
    let body = json!({
        "instance_type": run.on,
        "num_nodes": run.num_nodes,
        "container": run.container,
        "save_keys": false,
    });
    // Not interruptible: without the response the ID of the new cluster would be lost.
    let accepted = ctx.api.uninterrupted().send_json(Method::POST, "/cluster/create", &body).await?;
    let cluster = required_field(&accepted, "cluster_id")?.to_owned();
    let request = required_field(&accepted, "request_id")?;
    print_unless_json(ctx, text_field(&accepted, "message"));
    let done = tokio::select! {
        biased;
        () = ctx.interrupts.pressed() => Err(Failure::interrupted("interrupted")),
        done = run_on_cluster(ctx, &run, directory, &cluster, request) => done,
    };
    let is_interrupted = ctx.interrupts.is_pressed();
    if run.keep {
        return done.map_err(|failure| failure.with_addition(&format!("cluster {cluster} was kept")));
    }
    // The cluster is destroyed whatever happened, so that the user does not pay for a forgotten cluster.
    let there = format!("cluster {cluster} still exists; destroy it with `tarn cluster destroy {cluster}`");
    match (done, destroy_cluster(ctx, &cluster, request).await) {
        (Err(_), Ok(())) if is_interrupted => {
            Err(Failure::interrupted(format!("interrupted; cluster {cluster} and what ran on it are being destroyed")))
        }
        (Err(done), Ok(())) if done.is_reader_gone() => {
            Err(Failure::new("standard output was closed; the job was stopped with its cluster"))
        }
        (done, Ok(())) => done,
        (Ok(()), Err(gone)) => Err(Failure::new(format!("the job is done, but {there} ({gone})"))),
        (Err(done), Err(_)) => Err(done.with_addition(&there)),
    }
}

/// Destroys the cluster. A cluster that is still being created can be destroyed only after its creation has ended.
async fn destroy_cluster(ctx: &Context<'_>, cluster: &str, request: &str) -> Result<()> {
    let (api, path) = (ctx.api.uninterrupted(), format!("/cluster/{}", paths::encode_segment(cluster)?));
    let gone = match api.send_empty(Method::DELETE, &path).await {
        Err(failure) if failure.code() == ExitCodes::CONFLICT => {
            let progress = Progress::new(ctx);
            progress.set_message("Waiting until the cluster can be destroyed");
            let mut backoff = Backoff::default();
            backoff.record_success();
            // Whether the creation succeeds or fails, the cluster can be destroyed afterwards.
            let _ = request_wait::poll_request(&api.without_progress(), request, backoff, &progress).await;
            api.send_empty(Method::DELETE, &path).await
        }
        gone => gone,
    };
    match gone {
        Err(failure) if failure.code() == ExitCodes::NOT_FOUND => Ok(()),
        gone => gone.map(drop),
    }
}

async fn run_on_cluster(
    ctx: &Context<'_>,
    run: &Run,
    directory: Option<PathBuf>,
    cluster: &str,
    request: &str,
) -> Result<()> {
    request_wait::wait_for_accepted_request(ctx, request).await?;
    let ignore = if directory.is_some() { template_ignore_patterns(ctx).await? } else { Vec::new() };
    let order = JobSpec { config: job_config(run, ignore)?, cluster: cluster.to_owned(), teardown: false, directory };
    let started = push::create_and_start_job(ctx, order).await?;
    let job = required_field(&started, "job_id")?;
    let ended = logs::follow_log(ctx, job).await?;
    // Outputs are fetched however the job ended; the failure of the job takes precedence.
    let fetched = if run.output.is_empty() { Ok(()) } else { fetch_job_outputs(ctx, job, run.force).await };
    logs::report_job_end(ctx, &ended)?;
    fetched
}

async fn fetch_job_outputs(ctx: &Context<'_>, job: &str, force: bool) -> Result<()> {
    let body = ctx.api.get(&format!("/job/pull/{}", paths::encode_segment(job)?), &[]).await?;
    let fetched = pull::fetch_outputs(ctx, &body, &ctx.environment.directory, force).await?;
    print_unless_json(ctx, &fetched.describe(&ctx.environment.directory));
    Ok(())
}

fn print_unless_json(ctx: &Context<'_>, message: &str) {
    if !ctx.options.json {
        output::print_note(message);
    }
}

/// The `ignore` patterns of the template, which exclude keys, virtual environments and the like.
async fn template_ignore_patterns(ctx: &Context<'_>) -> Result<Vec<String>> {
    let body = ctx.api.get("/job/init", &[]).await?;
    let template = text_field(&body, "empty_tp_config").parse::<toml::Table>().unwrap_or_default();
    let patterns = template.get("ignore").and_then(toml::Value::as_array).into_iter().flatten();
    Ok(patterns.filter_map(toml::Value::as_str).map(str::to_owned).collect())
}

/// The job file as text.
fn job_config(run: &Run, ignore: Vec<String>) -> Result<String> {
    let mut table = toml::Table::new();
    table.insert("commands".to_owned(), vec![run.command.clone()].into());
    table.insert("outputs".to_owned(), run.output.clone().into());
    table.insert("ignore".to_owned(), ignore.into());
    if run.num_nodes > 1 {
        table.insert("nodes".to_owned(), "all".into());
    }
    if let Some(timeout) = &run.timeout {
        table.insert("timeout".to_owned(), timeout.clone().into());
    }
    toml::to_string(&table).map_err(|e| Failure::with_cause("cannot write the job file", e))
}
