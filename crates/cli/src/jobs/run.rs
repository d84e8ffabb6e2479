//! `tarn job run`: a cluster, a job, its output, its outputs, and no cluster any more, in one line.

use std::path::PathBuf;

use clap::Args;
use http::Method;
use serde_json::json;

use super::push::{self, Order};
use super::{logs, pull};
use crate::commands::Context;
use crate::failure::{ExitCodes, Failure, Result};
use crate::output::{self, required, text};
use crate::paths;
use crate::patience::Patience;
use crate::waits::{self as requests, Progress};

#[derive(Args, Debug)]
pub struct Run {
    /// What to run, as one would type it
    command: String,
    /// The type of the machine
    #[arg(long, value_name = "TYPE")]
    on: String,
    /// How many machines; it runs on all of them
    #[arg(short, long, value_name = "NUMBER", default_value_t = 1)]
    num_nodes: u32,
    /// The container image that the machines are started from, as `debian:12`; without it, they have the built-in one
    #[arg(long, value_name = "IMAGE")]
    container: Option<String>,
    /// Upload this directory, and run in it; without it nothing is uploaded
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
    /// Files to keep, as globs; they are fetched to the current directory
    #[arg(long, value_name = "GLOB")]
    output: Vec<String>,
    /// Stop it after this time, such as 90s, 30m or 2h
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// Overwrite files that are here already by outputs
    #[arg(long)]
    force: bool,
    /// Leave the cluster when it has ended
    #[arg(long)]
    keep: bool,
}

pub(crate) async fn run(ctx: &Context<'_>, run: Run) -> Result<()> {
    // What can be known before is said before there is anything to pay for.
    let directory = run.dir.as_ref().map(|path| paths::expand(ctx.surroundings, path));
    if let Some(missing) = directory.as_ref().filter(|path| !path.is_dir()) {
        return Err(Failure::usage(format!("{} is no directory", missing.display())));
    }
    let body = json!({
        "instance_type": run.on,
        "num_nodes": run.num_nodes,
        "container": run.container,
        "save_keys": false,
    });
    // Nobody would know which cluster it is, if this was not heard to its end.
    let accepted = ctx.engine.uninterrupted().send(Method::POST, "/cluster/create", &body).await?;
    let cluster = required(&accepted, "cluster_id")?.to_owned();
    let request = required(&accepted, "request_id")?;
    tell(ctx, text(&accepted, "message"));
    let done = tokio::select! {
        biased;
        () = ctx.interrupts.pressed() => Err(Failure::interrupted("interrupted")),
        done = on_cluster(ctx, &run, directory, &cluster, request) => done,
    };
    let is_interrupted = ctx.interrupts.is_pressed();
    if run.keep {
        return done.map_err(|failure| failure.and(&format!("cluster {cluster} is kept")));
    }
    // Whatever happened: who has to pay for a machine that he does not know of is not served well.
    let there = format!("cluster {cluster} is still there: destroy it with `tarn cluster destroy {cluster}`");
    match (done, destroy(ctx, &cluster, request).await) {
        (Err(_), Ok(())) if is_interrupted => {
            Err(Failure::interrupted(format!("interrupted; cluster {cluster} and what ran on it are being destroyed")))
        }
        (Err(done), Ok(())) if done.is_enough() => {
            Err(Failure::new("nobody reads what it prints; the job was stopped with its cluster"))
        }
        (done, Ok(())) => done,
        (Ok(()), Err(gone)) => Err(Failure::new(format!("the job is done, but {there} ({gone})"))),
        (Err(done), Err(_)) => Err(done.and(&there)),
    }
}

/// Destroys the cluster. One that is being made cannot be destroyed until it is there.
async fn destroy(ctx: &Context<'_>, cluster: &str, request: &str) -> Result<()> {
    let (engine, path) = (ctx.engine.uninterrupted(), format!("/cluster/{}", paths::segment(cluster)?));
    let gone = match engine.act(Method::DELETE, &path).await {
        Err(failure) if failure.code() == ExitCodes::CONFLICT => {
            let progress = Progress::new(ctx);
            progress.tell("Waits until the cluster can be destroyed");
            let mut patience = Patience::default();
            patience.worked();
            // However that ends, there is then something to destroy or nothing.
            let _ = requests::until_ended(&engine.silent(), request, patience, &progress).await;
            engine.act(Method::DELETE, &path).await
        }
        gone => gone,
    };
    match gone {
        Err(failure) if failure.code() == ExitCodes::NOT_FOUND => Ok(()),
        gone => gone.map(drop),
    }
}

async fn on_cluster(
    ctx: &Context<'_>,
    run: &Run,
    directory: Option<PathBuf>,
    cluster: &str,
    request: &str,
) -> Result<()> {
    requests::wait_for_accepted(ctx, request).await?;
    let ignore = if directory.is_some() { ignored(ctx).await? } else { Vec::new() };
    let order = Order { config: config(run, ignore)?, cluster: cluster.to_owned(), teardown: false, directory };
    let started = push::start(ctx, order).await?;
    let job = required(&started, "job_id")?;
    let ended = logs::follow(ctx, job).await?;
    // Outputs are kept however it ended; what the job says of itself comes first.
    let fetched = if run.output.is_empty() { Ok(()) } else { fetch(ctx, job, run.force).await };
    logs::conclude(ctx, &ended)?;
    fetched
}

async fn fetch(ctx: &Context<'_>, job: &str, force: bool) -> Result<()> {
    let body = ctx.engine.get(&format!("/job/pull/{}", paths::segment(job)?), &[]).await?;
    let fetched = pull::fetch_all(ctx, &body, &ctx.surroundings.directory, force).await?;
    tell(ctx, &fetched.told(&ctx.surroundings.directory));
    Ok(())
}

fn tell(ctx: &Context<'_>, message: &str) {
    if !ctx.options.json {
        output::tell(message);
    }
}

/// What the file to begin with leaves out: keys, environments and the like are not meant by who names a directory.
async fn ignored(ctx: &Context<'_>) -> Result<Vec<String>> {
    let body = ctx.engine.get("/job/init", &[]).await?;
    let template = text(&body, "empty_tp_config").parse::<toml::Table>().unwrap_or_default();
    let patterns = template.get("ignore").and_then(toml::Value::as_array).into_iter().flatten();
    Ok(patterns.filter_map(toml::Value::as_str).map(str::to_owned).collect())
}

/// The file of the job.
fn config(run: &Run, ignore: Vec<String>) -> Result<String> {
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
    toml::to_string(&table).map_err(|e| Failure::doing("the job cannot be described", e))
}
