//! Finding an instance by what the user typed: the name or ID of a cluster (its first instance), or of an instance.

use serde_json::Value;

use crate::commands::Context;
use crate::commands::ssh::target::SshTarget;
use crate::failure::{ExitCodes, Failure, Result};
use crate::files::paths;
use crate::terminal::output::text_field;

/// The SSH target with this name.
pub(crate) async fn find_ssh_target(ctx: &Context<'_>, name: &str) -> Result<SshTarget> {
    SshTarget::from_instance(&find_instance(ctx, name).await?, ctx.api.address())
}

/// The instance with this name, as the engine describes it.
pub(crate) async fn find_instance(ctx: &Context<'_>, name: &str) -> Result<Value> {
    match ctx.api.get(&format!("/cluster/info/{}", paths::encode_segment(name)?), &[]).await {
        Ok(body) => first_instance(&body["cluster_info"], name),
        Err(failure) if failure.code() == ExitCodes::NOT_FOUND || failure.code() == ExitCodes::USAGE => {
            list_visible_clusters(ctx).await?.iter().find_map(|cluster| instance_of_cluster(cluster, name)).ok_or_else(
                || {
                    Failure::not_found(format!(
                        "there is no cluster or instance called {name}; list them with `tarn cluster list --instances`"
                    ))
                },
            )
        }
        Err(failure) => Err(failure),
    }
}

/// The instance of a cluster with this name or ID, or whose number follows the name of the cluster.
fn instance_of_cluster(cluster: &Value, name: &str) -> Option<Value> {
    let instances = cluster["instances"].as_array()?.iter().enumerate();
    let is_meant = |number: usize, instance: &Value| {
        text_field(instance, "id") == name
            || text_field(instance, "name") == name
            || format!("{}-{number}", text_field(cluster, "name")) == name
    };
    instances.into_iter().find(|(number, instance)| is_meant(*number, instance)).map(|(_, instance)| instance.clone())
}

fn first_instance(cluster: &Value, name: &str) -> Result<Value> {
    match cluster["instances"].as_array().and_then(|instances| instances.first()) {
        Some(instance) => Ok(instance.clone()),
        None => {
            Err(Failure::new(format!("cluster {name} is {} and has no instances yet", text_field(cluster, "status"))))
        }
    }
}

/// All clusters that the caller may see.
pub(crate) async fn list_visible_clusters(ctx: &Context<'_>) -> Result<Vec<Value>> {
    let mut clusters: Vec<Value> = Vec::new();
    for of_organization in ["false", "true"] {
        let query = [("include_org", of_organization.to_owned()), ("limit", "1000".to_owned())];
        let body = ctx.api.get_all_pages("/cluster/list", &query, "clusters").await?;
        for cluster in body["clusters"].as_array().into_iter().flatten() {
            if clusters.iter().all(|known| known["id"] != cluster["id"]) {
                clusters.push(cluster.clone());
            }
        }
    }
    Ok(clusters)
}
