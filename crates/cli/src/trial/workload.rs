//! The steps with a cluster, a volume on it, and a job that writes to the volume.

use std::future::Future;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::Trial;
use crate::commands::Context;
use crate::commands::jobs;
use crate::commands::request_wait;
use crate::failure::{Failure, Result};
use crate::files::paths;
use crate::terminal::output::{required_field, text_field};
use crate::terminal::progress::Progress;
use crate::transport::api_client::ApiClient;
use crate::transport::backoff::Backoff;
use crate::transport::transfers::Download;

/// The timeout of a request and of a job: long enough for a busy host, and an end for a request that waits for
/// capacity.
const STEP_TIMEOUT: Duration = Duration::from_secs(180);

/// The output of the job, and the maximum size that is read.
const OUTPUT: &str = "proof.txt";
const MAX_OUTPUT: usize = 4096;

pub(super) async fn run_workload(trial: &mut Trial<'_, '_>) {
    let (ctx, name) = (trial.ctx, trial.name.clone());
    let cluster = trial.run_step("cluster create", create_cluster(ctx, &name)).await;
    let volume = trial.run_step("volume create", create_volume(ctx, &name)).await;
    let (Some(cluster), volume) = (cluster, volume) else { return };
    let mut attached = None;
    if let Some(volume) = volume {
        let body = json!({ "storage_id": volume, "cluster_ids": [cluster] });
        let attach = send_and_wait(ctx, "/storage/attach", body, format!("{volume} on {cluster}"));
        attached = trial.run_action("volume attach", attach).await.then_some(volume);
    }
    // Without a volume the job writes to the disk of its instance, so that jobs are tried all the same.
    let place = attached.as_ref().map_or_else(|| "/tmp".to_owned(), |volume| format!("/mnt/{volume}"));
    if !trial.options.has_jobs {
        let reason = "skipped: this engine uses the fake driver, whose instances do not run jobs";
        trial.run_action("job run", async { Ok(reason.to_owned()) }).await;
    } else if let Some(job) = trial.run_step("job run", run_job(ctx, &name, &cluster, &place)).await {
        trial.run_action("job output", check_job_output(ctx, &job, &name)).await;
    }
    if let Some(volume) = attached {
        let body = json!({ "storage_id": volume, "cluster_id": cluster });
        trial.run_action("volume detach", send_and_wait(ctx, "/storage/detach", body, volume)).await;
    }
}

async fn create_cluster(ctx: &Context<'_>, name: &str) -> Result<(String, String)> {
    let types = ctx.api.get("/cluster/types", &[]).await?;
    let size = |kind: &&Value| {
        let milli = (kind["cpus"].as_f64().unwrap_or(f64::MAX) * 1000.0) as u64;
        (kind["gpus"].as_u64().unwrap_or(u64::MAX), milli, kind["memory_bytes"].as_u64().unwrap_or(u64::MAX))
    };
    let smallest = types["types"].as_array().into_iter().flatten().min_by_key(size);
    let kind = required_field(smallest.ok_or_else(|| Failure::new("the engine has no instance types"))?, "name")?;
    let body = json!({ "instance_type": kind, "tp_cluster_name": name, "num_nodes": 1, "save_keys": false });
    let accepted = ctx.api.uninterrupted().send_json(Method::POST, "/cluster/create", &body).await?;
    wait_unless_interrupted(ctx, &accepted).await?;
    let id = required_field(&accepted, "cluster_id")?.to_owned();
    Ok((id.clone(), format!("{id} of type {kind}")))
}

async fn create_volume(ctx: &Context<'_>, name: &str) -> Result<(String, String)> {
    let body = json!({ "size": 1, "name": name });
    let accepted = ctx.api.uninterrupted().send_json(Method::POST, "/storage/create", &body).await?;
    wait_unless_interrupted(ctx, &accepted).await?;
    let id = required_field(&accepted, "storage_id")?.to_owned();
    Ok((id.clone(), format!("{id} of 1 GB")))
}

async fn run_job(ctx: &Context<'_>, name: &str, cluster: &str, place: &str) -> Result<(String, String)> {
    let file = format!("{place}/{name}");
    let mut config = toml::Table::new();
    let commands = [format!("echo {name} > {file}"), format!("cat {file} > {OUTPUT}"), format!("rm {file}")];
    config.insert("commands".to_owned(), commands.to_vec().into());
    config.insert("outputs".to_owned(), vec![OUTPUT.to_owned()].into());
    let config = toml::to_string(&config).map_err(|e| Failure::with_cause("cannot write the job file", e))?;
    let body = json!({ "tp_config": config, "cluster_id": cluster, "files": false, "start": true });
    let made = ctx.api.uninterrupted().send_json(Method::POST, "/job/create", &body).await?;
    let job = required_field(&made, "job_id")?.to_owned();
    if let Ok(ended) = tokio::time::timeout(STEP_TIMEOUT, jobs::wait_until_successful(ctx, &job)).await {
        ended?;
    } else {
        let info = ctx.api.get(&format!("/job/info/{}", paths::encode_segment(&job)?), &[]).await?;
        let (seconds, why) = (STEP_TIMEOUT.as_secs(), text_field(&info["job_info"], "explanation"));
        return Err(Failure::new(format!("{job} did not end within {seconds} s: {why}")));
    }
    Ok((job.clone(), format!("{job} wrote to {place}")))
}

async fn check_job_output(ctx: &Context<'_>, job: &str, name: &str) -> Result<String> {
    let body = ctx.api.get(&format!("/job/pull/{}", paths::encode_segment(job)?), &[]).await?;
    let url = text_field(&body["download_map"], OUTPUT);
    if url.is_empty() {
        return Err(Failure::new(format!("the engine has no {OUTPUT} of {job}")));
    }
    let mut download = Download::start(&ctx.api, url).await?;
    let mut found = Vec::new();
    while let Some(piece) = download.next_chunk().await?
        && found.len() < MAX_OUTPUT
    {
        found.extend_from_slice(&piece);
    }
    if String::from_utf8_lossy(&found).trim() == name {
        Ok(format!("{OUTPUT} has the expected content"))
    } else {
        Err(Failure::new(format!("{OUTPUT} of {job} does not have the expected content")))
    }
}

async fn send_and_wait(ctx: &Context<'_>, path: &str, body: Value, result: String) -> Result<String> {
    let accepted = ctx.api.uninterrupted().send_json(Method::POST, path, &body).await?;
    wait_unless_interrupted(ctx, &accepted).await.map(|()| result)
}

/// Waits until the accepted requests have ended, or until Ctrl-C.
async fn wait_unless_interrupted(ctx: &Context<'_>, accepted: &Value) -> Result<()> {
    let api = ctx.api.uninterrupted();
    tokio::select! {
        biased;
        () = ctx.interrupts.pressed() => Err(Failure::interrupted("interrupted")),
        done = wait_for_requests(&api, accepted) => done,
    }
}

/// Waits until the accepted requests have ended.
pub(super) async fn wait_for_requests(api: &ApiClient, accepted: &Value) -> Result<()> {
    let one = accepted.get("request_id").into_iter();
    let all = one.chain(accepted.get("request_ids").and_then(Value::as_array).into_iter().flatten());
    for request in all.filter_map(Value::as_str) {
        let mut backoff = Backoff::default();
        backoff.record_success();
        with_timeout(request_wait::poll_request(api, request, backoff, &Progress::hidden())).await?;
    }
    Ok(())
}

/// Limits the duration of a wait.
pub(super) async fn with_timeout<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let seconds = STEP_TIMEOUT.as_secs();
    let late =
        |_| Failure::new(format!("it did not end within {seconds} s; `tarn request list` shows what it waits for"));
    tokio::time::timeout(STEP_TIMEOUT, work).await.map_err(late)?
}
