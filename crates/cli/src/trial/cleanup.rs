//! Removes what a trial created. Everything is found by the unique name of the trial; what does not exist needs no
//! step.

use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::Trial;
use super::buckets;
use super::signing::signed_call;
use super::workload::{wait_for_requests, with_timeout};
use crate::failure::{ExitCodes, Failure, Result};
use crate::files::paths;
use crate::terminal::output::{required_field, text_field};
use crate::transport::api_client::ApiClient;

/// The pause between two tries to remove something that is still changing.
const PAUSE: Duration = Duration::from_millis(500);

/// Removes everything, also after Ctrl-C. A second Ctrl-C ends the program at once.
pub(super) async fn remove_everything(trial: &mut Trial<'_, '_>) {
    let (api, name) = (trial.ctx.api.uninterrupted(), trial.name.clone());
    match find_by_name(&api, "/cluster/list", "clusters", &name).await {
        Ok(Some(cluster)) => {
            trial.run_action("cluster destroy", destroy_resource(&api, format!("/cluster/{cluster}"), &cluster)).await;
            delete_jobs(trial, &api, &cluster).await;
        }
        Ok(None) => {}
        Err(failure) => drop(trial.run_action("cluster destroy", async { Err(failure) }).await),
    }
    match find_by_name(&api, "/storage/list", "volumes", &name).await {
        Ok(Some(volume)) => {
            trial.run_action("volume destroy", destroy_resource(&api, format!("/storage/{volume}"), &volume)).await;
        }
        Ok(None) => {}
        Err(failure) => drop(trial.run_action("volume destroy", async { Err(failure) }).await),
    }
    // Without object storage there is no bucket.
    let listed = api.get("/object-storage/bucket/list", &[]).await;
    if let Ok(body) = &listed
        && body["buckets"].as_array().into_iter().flatten().any(|bucket| *bucket == name.as_str())
    {
        let date = trial.options.date;
        trial.run_action("bucket delete", delete_bucket(&api, &name, date)).await;
    }
    let is_enabled = !matches!(&listed, Err(failure) if failure.code() == ExitCodes::NOT_FOUND);
    if trial.has_enabled && is_enabled {
        trial.run_action("object storage disable", disable_object_storage(&api)).await;
    }
}

async fn find_by_name(api: &ApiClient, path: &str, items: &str, name: &str) -> Result<Option<String>> {
    let body = api.get_all_pages(path, &[("limit", "100".to_owned())], items).await?;
    let found = body[items].as_array().into_iter().flatten().find(|item| text_field(item, "name") == name);
    found.map(|item| paths::encode_segment(required_field(item, "id")?)).transpose()
}

/// Destroys a cluster or a volume, and retries while it is still being created or changed.
async fn destroy_resource(api: &ApiClient, path: String, id: &str) -> Result<String> {
    let accepted = with_timeout(async {
        loop {
            match api.send_empty(Method::DELETE, &path).await {
                Err(failure) if failure.code() == ExitCodes::CONFLICT => tokio::time::sleep(PAUSE).await,
                other => return other,
            }
        }
    });
    match accepted.await {
        Err(failure) if failure.code() == ExitCodes::NOT_FOUND => Ok(format!("{id} was already destroyed")),
        Err(failure) => Err(failure),
        Ok(accepted) => wait_for_requests(api, &accepted).await.map(|()| format!("{id} was destroyed")),
    }
}

/// Deletes the jobs of the cluster, which ended with it.
async fn delete_jobs(trial: &mut Trial<'_, '_>, api: &ApiClient, cluster: &str) {
    let listed = api.get_all_pages("/job/list", &[("limit", "100".to_owned())], "jobs").await.unwrap_or_default();
    let all = listed["jobs"].as_array().into_iter().flatten();
    let ids: Vec<&str> =
        all.filter(|job| text_field(job, "cluster_id") == cluster).map(|job| text_field(job, "id")).collect();
    for id in ids {
        let forget = async {
            let path = format!("/job/delete/{}", paths::encode_segment(id)?);
            delete_job(api, &path).await.map(|()| format!("{id} was deleted"))
        };
        trial.run_action("job delete", forget).await;
    }
}

/// Deletes a job, and retries while it is still ending.
async fn delete_job(api: &ApiClient, path: &str) -> Result<()> {
    with_timeout(async {
        loop {
            match api.send_empty(Method::DELETE, path).await {
                Err(failure) if failure.code() == ExitCodes::CONFLICT => tokio::time::sleep(PAUSE).await,
                other => return other.map(drop),
            }
        }
    })
    .await
}

async fn delete_bucket(api: &ApiClient, bucket: &str, date: &(dyn Fn() -> String + Sync)) -> Result<String> {
    let keys = buckets::parse_keys(&api.get("/object-storage/credentials", &[]).await?)?;
    signed_call(&keys, &Method::DELETE, &keys.object(bucket, buckets::OBJECT), b"", &date()).await?;
    api.send_empty(Method::DELETE, &format!("/object-storage/bucket/delete/{bucket}")).await?;
    Ok(format!("{bucket} was deleted"))
}

/// Disables object storage, unless another client has created buckets in the meantime.
async fn disable_object_storage(api: &ApiClient) -> Result<String> {
    let body = api.get("/object-storage/bucket/list", &[]).await?;
    if body["buckets"].as_array().is_some_and(|buckets| !buckets.is_empty()) {
        return Ok("it stays enabled, because it has other buckets by now".to_owned());
    }
    let body: Value = match api.send_empty(Method::DELETE, "/object-storage/disable?force=false").await {
        Err(failure) if failure.body().is_some_and(|body| text_field(body, "code") == "not_yours") => {
            return Ok("it stays enabled, because only an administrator of the organization can disable it".to_owned());
        }
        sent => sent?,
    };
    match text_field(&body, "message") {
        "" => Err(Failure::new("the engine did not confirm that it is disabled")),
        _ => Ok("object storage is disabled again".to_owned()),
    }
}
