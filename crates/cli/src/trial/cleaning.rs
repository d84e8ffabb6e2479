//! Removing what a trial made. Everything is found by the name that only this trial has, and what is not there needs no step.

use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::Trial;
use super::buckets;
use super::machines::{wait, within};
use super::signing::call;
use crate::engine::Engine;
use crate::failure::{ExitCodes, Failure, Result};
use crate::output::{required, text};
use crate::paths;

/// How long it is waited until something that is on its way somewhere can be removed.
const PAUSE: Duration = Duration::from_millis(500);

/// Removes everything, also when somebody has pressed Ctrl-C: a second time ends the program at once.
pub(super) async fn clean(trial: &mut Trial<'_, '_>) {
    let (engine, name) = (trial.ctx.engine.uninterrupted(), trial.name.clone());
    match find(&engine, "/cluster/list", "clusters", &name).await {
        Ok(Some(cluster)) => {
            trial.act("cluster destroy", destroy(&engine, format!("/cluster/{cluster}"), &cluster)).await;
            jobs(trial, &engine, &cluster).await;
        }
        Ok(None) => {}
        Err(failure) => drop(trial.act("cluster destroy", async { Err(failure) }).await),
    }
    match find(&engine, "/storage/list", "volumes", &name).await {
        Ok(Some(volume)) => {
            trial.act("volume destroy", destroy(&engine, format!("/storage/{volume}"), &volume)).await;
        }
        Ok(None) => {}
        Err(failure) => drop(trial.act("volume destroy", async { Err(failure) }).await),
    }
    // Where there is no object storage, there is no bucket.
    let listed = engine.get("/object-storage/bucket/list", &[]).await;
    if let Ok(body) = &listed
        && body["buckets"].as_array().into_iter().flatten().any(|bucket| *bucket == name.as_str())
    {
        let date = trial.means.date;
        trial.act("bucket delete", empty(&engine, &name, date)).await;
    }
    let is_enabled = !matches!(&listed, Err(failure) if failure.code() == ExitCodes::NOT_FOUND);
    if trial.has_enabled && is_enabled {
        trial.act("object storage disable", disable(&engine)).await;
    }
}

async fn find(engine: &Engine, path: &str, items: &str, name: &str) -> Result<Option<String>> {
    let body = engine.list(path, &[("limit", "100".to_owned())], items).await?;
    let found = body[items].as_array().into_iter().flatten().find(|item| text(item, "name") == name);
    found.map(|item| paths::segment(required(item, "id")?)).transpose()
}

/// Removes a cluster or a volume. One that is being made or changed cannot be removed until it is there.
async fn destroy(engine: &Engine, path: String, id: &str) -> Result<String> {
    let accepted = within(async {
        loop {
            match engine.act(Method::DELETE, &path).await {
                Err(failure) if failure.code() == ExitCodes::CONFLICT => tokio::time::sleep(PAUSE).await,
                other => return other,
            }
        }
    });
    match accepted.await {
        Err(failure) if failure.code() == ExitCodes::NOT_FOUND => Ok(format!("{id} was gone already")),
        Err(failure) => Err(failure),
        Ok(accepted) => wait(engine, &accepted).await.map(|()| format!("{id} is gone")),
    }
}

/// Forgets the jobs of the cluster, which have ended with it.
async fn jobs(trial: &mut Trial<'_, '_>, engine: &Engine, cluster: &str) {
    let listed = engine.list("/job/list", &[("limit", "100".to_owned())], "jobs").await.unwrap_or_default();
    let all = listed["jobs"].as_array().into_iter().flatten();
    let ids: Vec<&str> = all.filter(|job| text(job, "cluster_id") == cluster).map(|job| text(job, "id")).collect();
    for id in ids {
        let forget = async {
            let path = format!("/job/delete/{}", paths::segment(id)?);
            destroy_job(engine, &path).await.map(|()| format!("{id} is forgotten"))
        };
        trial.act("job delete", forget).await;
    }
}

/// One that was stopped with its cluster takes a moment until it has ended.
async fn destroy_job(engine: &Engine, path: &str) -> Result<()> {
    within(async {
        loop {
            match engine.act(Method::DELETE, path).await {
                Err(failure) if failure.code() == ExitCodes::CONFLICT => tokio::time::sleep(PAUSE).await,
                other => return other.map(drop),
            }
        }
    })
    .await
}

async fn empty(engine: &Engine, bucket: &str, date: &(dyn Fn() -> String + Sync)) -> Result<String> {
    let keys = buckets::keys_of(&engine.get("/object-storage/credentials", &[]).await?)?;
    call(&keys, &Method::DELETE, &keys.object(bucket, buckets::OBJECT), b"", &date()).await?;
    engine.act(Method::DELETE, &format!("/object-storage/bucket/delete/{bucket}")).await?;
    Ok(format!("{bucket} is gone"))
}

/// Only where the trial has made it, and where nobody has begun to use it meanwhile.
async fn disable(engine: &Engine) -> Result<String> {
    let body = engine.get("/object-storage/bucket/list", &[]).await?;
    if body["buckets"].as_array().is_some_and(|buckets| !buckets.is_empty()) {
        return Ok("it stays enabled, because somebody uses it by now".to_owned());
    }
    let body: Value = engine.act(Method::DELETE, "/object-storage/disable?force=false").await?;
    match text(&body, "message") {
        "" => Err(Failure::new("the engine does not say whether it is disabled")),
        _ => Ok("it is as before".to_owned()),
    }
}
