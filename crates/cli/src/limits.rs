//! `tarn admin limits …`: what organizations, and users without one, may have.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::Value;
use tarn_api::admin::AdminLimitsPatch;

use crate::commands::Context;
use crate::failure::Result;
use crate::{output, paths, show};

/// How many are asked for at a time, and how often at most.
const PAGE: u32 = 1000;
const MAX_PAGES: usize = 100;

/// What administrators do about limits.
#[derive(Debug, Subcommand)]
pub enum Limits {
    /// Show what an organization or a user may have, and has
    Show {
        /// An organization, by its ID or name, or a user, by ID or e-mail address
        scope: String,
    },
    /// List all that have limits of their own
    #[command(visible_alias = "ls")]
    List,
    /// Set limits; those that are not named stay as they are
    Set(Set),
    /// Take limits away; those of the configuration hold again
    Clear {
        /// An organization, by its ID or name, or a user, by ID or e-mail address
        scope: String,
    },
}

#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("limit").required(true).multiple(true)))]
pub struct Set {
    /// An organization, by its ID or name, or a user, by ID or e-mail address
    scope: String,
    /// Nodes of clusters
    #[arg(long, value_name = "N", group = "limit")]
    instances: Option<u64>,
    /// CPUs of all nodes
    #[arg(long, value_name = "N", group = "limit")]
    cpus: Option<f64>,
    /// GPUs of all nodes
    #[arg(long, value_name = "N", group = "limit")]
    gpus: Option<u64>,
    /// Gigabytes of all volumes
    #[arg(long, value_name = "GB", group = "limit")]
    volume_gb: Option<u64>,
    /// Gigabytes of all objects
    #[arg(long, value_name = "GB", group = "limit")]
    object_gb: Option<f64>,
}

pub(crate) async fn run(ctx: &Context<'_>, limits: Limits) -> Result<()> {
    let body = match limits {
        Limits::List => list(ctx).await?,
        Limits::Show { scope } => ctx.engine.get(&path(ctx, scope).await?, &[]).await?,
        Limits::Set(Set { scope, instances, cpus, gpus, volume_gb, object_gb }) => {
            let patch = AdminLimitsPatch {
                instances: instances.map(Some),
                cpus: cpus.map(Some),
                gpus: gpus.map(Some),
                volume_gb: volume_gb.map(Some),
                object_gb: object_gb.map(Some),
            };
            ctx.engine.send(Method::PATCH, &path(ctx, scope).await?, &patch).await?
        }
        Limits::Clear { scope } => ctx.engine.act(Method::DELETE, &path(ctx, scope).await?).await?,
    };
    show::once(ctx, &body, output::message)
}

/// All of them, in the body of the first page. What an engine says of a page are the lines of a table, each with its head.
async fn list(ctx: &Context<'_>) -> Result<Value> {
    let mut body = page(ctx, None).await?;
    for _ in 1..MAX_PAGES {
        let Some(after) = body["next_after"].as_str().map(str::to_owned) else { break };
        let mut more = page(ctx, Some(after)).await?;
        body["next_after"] = more["next_after"].take();
        let (Some(all), Some(others)) = (body["limits"].as_array_mut(), more["limits"].as_array_mut()) else { break };
        if others.is_empty() {
            break;
        }
        all.append(others);
        let lines = output::text(&more, "message").lines().skip(1);
        let table = [output::text(&body, "message").trim_end()].into_iter().chain(lines).collect::<Vec<_>>().join("\n");
        body["message"] = table.into();
    }
    if body["next_after"].is_string() {
        output::tell("There is more than this.");
    }
    Ok(body)
}

async fn page(ctx: &Context<'_>, after: Option<String>) -> Result<Value> {
    let limit = ("limit", PAGE.to_string());
    let query: Vec<_> = after.map(|after| ("after", after)).into_iter().chain([limit]).collect();
    ctx.engine.get("/admin/limits", &query).await
}

async fn path(ctx: &Context<'_>, scope: String) -> Result<String> {
    let is_id = scope.starts_with("o-") || scope.starts_with("u-");
    let found = if is_id { None } else { named(ctx, &scope).await? };
    Ok(format!("/admin/limits/{}", paths::segment(found.as_ref().unwrap_or(&scope))?))
}

/// The ID of the organization of this name, or of the user of this e-mail address. Of what is neither, the engine says so.
async fn named(ctx: &Context<'_>, name: &str) -> Result<Option<String>> {
    let body = ctx.engine.list("/admin/user/list", &[("limit", PAGE.to_string())], "users").await?;
    let users = || body["users"].as_array().into_iter().flatten();
    let id = |by: &str, id: &str| {
        let found = users().find(|user| output::text(user, by) == name)?;
        Some(output::text(found, id).to_owned()).filter(|id| !id.is_empty())
    };
    Ok(id("org_name", "org_id").or_else(|| id("email", "user_id")))
}
