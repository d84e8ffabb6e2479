//! A cluster, a volume on it, and a job that writes there.

use std::future::Future;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::Trial;
use crate::commands::Context;
use crate::engine::Engine;
use crate::failure::{Failure, Result};
use crate::output::{required, text};
use crate::patience::Patience;
use crate::transfers::Download;
use crate::waits::{self, Progress};
use crate::{jobs, paths};

/// How long a request and a job may take: a machine that is busy takes its time, and one that waits for capacity gets none.
const PATIENCE: Duration = Duration::from_secs(180);

/// The file that the job keeps, and how much of it is read.
const OUTPUT: &str = "proof.txt";
const MAX_OUTPUT: usize = 4096;

pub(super) async fn run(trial: &mut Trial<'_, '_>) {
    let (ctx, name) = (trial.ctx, trial.name.clone());
    let cluster = trial.step("cluster create", create_cluster(ctx, &name)).await;
    let volume = trial.step("volume create", create_volume(ctx, &name)).await;
    let (Some(cluster), volume) = (cluster, volume) else { return };
    let mut attached = None;
    if let Some(volume) = volume {
        let body = json!({ "storage_id": volume, "cluster_ids": [cluster] });
        let attach = send_and_wait(ctx, "/storage/attach", body, format!("{volume} on {cluster}"));
        attached = trial.act("volume attach", attach).await.then_some(volume);
    }
    // Without a volume the job writes to the disk of its machine: then at least jobs are known to work.
    let place = attached.as_ref().map_or_else(|| "/tmp".to_owned(), |volume| format!("/mnt/{volume}"));
    if !trial.means.has_jobs {
        let words = "skipped: this engine has the fake driver, whose machines are made up and run nothing";
        trial.act("job run", async { Ok(words.to_owned()) }).await;
    } else if let Some(job) = trial.step("job run", run_job(ctx, &name, &cluster, &place)).await {
        trial.act("job output", fetch(ctx, &job, &name)).await;
    }
    if let Some(volume) = attached {
        let body = json!({ "storage_id": volume, "cluster_id": cluster });
        trial.act("volume detach", send_and_wait(ctx, "/storage/detach", body, volume)).await;
    }
}

async fn create_cluster(ctx: &Context<'_>, name: &str) -> Result<(String, String)> {
    let types = ctx.engine.get("/cluster/types", &[]).await?;
    let size = |kind: &&Value| {
        let milli = (kind["cpus"].as_f64().unwrap_or(f64::MAX) * 1000.0) as u64;
        (kind["gpus"].as_u64().unwrap_or(u64::MAX), milli, kind["memory_bytes"].as_u64().unwrap_or(u64::MAX))
    };
    let smallest = types["types"].as_array().into_iter().flatten().min_by_key(size);
    let kind = required(smallest.ok_or_else(|| Failure::new("the engine has no types of machines"))?, "name")?;
    let body = json!({ "instance_type": kind, "tp_cluster_name": name, "num_nodes": 1, "save_keys": false });
    let accepted = ctx.engine.uninterrupted().send(Method::POST, "/cluster/create", &body).await?;
    settled(ctx, &accepted).await?;
    let id = required(&accepted, "cluster_id")?.to_owned();
    Ok((id.clone(), format!("{id}, a {kind}")))
}

async fn create_volume(ctx: &Context<'_>, name: &str) -> Result<(String, String)> {
    let body = json!({ "size": 1, "name": name });
    let accepted = ctx.engine.uninterrupted().send(Method::POST, "/storage/create", &body).await?;
    settled(ctx, &accepted).await?;
    let id = required(&accepted, "storage_id")?.to_owned();
    Ok((id.clone(), format!("{id} of 1 GB")))
}

async fn run_job(ctx: &Context<'_>, name: &str, cluster: &str, place: &str) -> Result<(String, String)> {
    let file = format!("{place}/{name}");
    let mut config = toml::Table::new();
    let commands = [format!("echo {name} > {file}"), format!("cat {file} > {OUTPUT}"), format!("rm {file}")];
    config.insert("commands".to_owned(), commands.to_vec().into());
    config.insert("outputs".to_owned(), vec![OUTPUT.to_owned()].into());
    let config = toml::to_string(&config).map_err(|e| Failure::doing("the job cannot be described", e))?;
    let body = json!({ "tp_config": config, "cluster_id": cluster, "files": false, "start": true });
    let made = ctx.engine.uninterrupted().send(Method::POST, "/job/create", &body).await?;
    let job = required(&made, "job_id")?.to_owned();
    if let Ok(ended) = tokio::time::timeout(PATIENCE, jobs::ended(ctx, &job)).await {
        ended?;
    } else {
        let info = ctx.engine.get(&format!("/job/info/{}", paths::segment(&job)?), &[]).await?;
        let (seconds, why) = (PATIENCE.as_secs(), text(&info["job_info"], "explanation"));
        return Err(Failure::new(format!("{job} has not ended within {seconds} s: {why}")));
    }
    Ok((job.clone(), format!("{job} wrote to {place}")))
}

async fn fetch(ctx: &Context<'_>, job: &str, name: &str) -> Result<String> {
    let body = ctx.engine.get(&format!("/job/pull/{}", paths::segment(job)?), &[]).await?;
    let url = text(&body["download_map"], OUTPUT);
    if url.is_empty() {
        return Err(Failure::new(format!("the engine kept no {OUTPUT} of {job}")));
    }
    let mut download = Download::begin(&ctx.engine, url).await?;
    let mut found = Vec::new();
    while let Some(piece) = download.next().await?
        && found.len() < MAX_OUTPUT
    {
        found.extend_from_slice(&piece);
    }
    match String::from_utf8_lossy(&found).trim() == name {
        true => Ok(format!("{OUTPUT} is what the job wrote")),
        false => Err(Failure::new(format!("{OUTPUT} of {job} is not what the job wrote"))),
    }
}

async fn send_and_wait(ctx: &Context<'_>, path: &str, body: Value, told: String) -> Result<String> {
    let accepted = ctx.engine.uninterrupted().send(Method::POST, path, &body).await?;
    settled(ctx, &accepted).await.map(|()| told)
}

/// Waits for the end of what was accepted, unless somebody presses Ctrl-C.
async fn settled(ctx: &Context<'_>, accepted: &Value) -> Result<()> {
    let engine = ctx.engine.uninterrupted();
    tokio::select! {
        biased;
        () = ctx.interrupts.pressed() => Err(Failure::interrupted("interrupted")),
        done = wait(&engine, accepted) => done,
    }
}

/// Waits for the end of what was accepted.
pub(super) async fn wait(engine: &Engine, accepted: &Value) -> Result<()> {
    let one = accepted.get("request_id").into_iter();
    let all = one.chain(accepted.get("request_ids").and_then(Value::as_array).into_iter().flatten());
    for request in all.filter_map(Value::as_str) {
        let mut patience = Patience::default();
        patience.worked();
        within(waits::until_ended(engine, request, patience, &Progress::hidden())).await?;
    }
    Ok(())
}

/// Waits, but not for ever.
pub(super) async fn within<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let seconds = PATIENCE.as_secs();
    let late =
        |_| Failure::new(format!("it was not done within {seconds} s; `tarn request list` says what it waits for"));
    tokio::time::timeout(PATIENCE, work).await.map_err(late)?
}
