//! Finding machines by what people call them: a cluster by its name or ID (its first machine), or a machine by its own.

use serde_json::Value;

use crate::commands::Context;
use crate::failure::{ExitCodes, Failure, Result};
use crate::logins::Login;
use crate::output::text;
use crate::paths;

/// The way into the machine of this name.
pub(crate) async fn find(ctx: &Context<'_>, name: &str) -> Result<Login> {
    Login::of(&describe(ctx, name).await?, ctx.engine.address())
}

/// The machine of this name, in the engine's words.
pub(crate) async fn describe(ctx: &Context<'_>, name: &str) -> Result<Value> {
    match ctx.engine.get(&format!("/cluster/info/{}", paths::segment(name)?), &[]).await {
        Ok(body) => first(&body["cluster_info"], name),
        Err(failure) if failure.code() == ExitCodes::NOT_FOUND || failure.code() == ExitCodes::USAGE => {
            all(ctx).await?.iter().find_map(|cluster| of_cluster(cluster, name)).ok_or_else(|| {
                Failure::not_found(format!(
                    "there is neither a cluster nor a machine called {name}; see `tarn cluster list --instances`"
                ))
            })
        }
        Err(failure) => Err(failure),
    }
}

/// The machine of a cluster that goes by its own name, its ID, or the cluster's name with its number.
fn of_cluster(cluster: &Value, name: &str) -> Option<Value> {
    let instances = cluster["instances"].as_array()?.iter().enumerate();
    let is_meant = |number: usize, instance: &Value| {
        text(instance, "id") == name
            || text(instance, "name") == name
            || format!("{}-{number}", text(cluster, "name")) == name
    };
    instances.into_iter().find(|(number, instance)| is_meant(*number, instance)).map(|(_, instance)| instance.clone())
}

fn first(cluster: &Value, name: &str) -> Result<Value> {
    match cluster["instances"].as_array().and_then(|instances| instances.first()) {
        Some(instance) => Ok(instance.clone()),
        None => Err(Failure::new(format!("cluster {name} is {} and has no machines yet", text(cluster, "status")))),
    }
}

/// All clusters that one may see.
pub(crate) async fn all(ctx: &Context<'_>) -> Result<Vec<Value>> {
    let mut clusters: Vec<Value> = Vec::new();
    for of_organization in ["false", "true"] {
        let query = [("include_org", of_organization.to_owned()), ("limit", "1000".to_owned())];
        let body = ctx.engine.list("/cluster/list", &query, "clusters").await?;
        for cluster in body["clusters"].as_array().into_iter().flatten() {
            if clusters.iter().all(|known| known["id"] != cluster["id"]) {
                clusters.push(cluster.clone());
            }
        }
    }
    Ok(clusters)
}
