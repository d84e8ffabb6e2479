//! `tarn admin limits …`: the limits of organizations, and of users without one.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::Value;
use tarn_api::admin::AdminLimitsPatch;
use tarn_base::Edit;

use crate::commands::Context;
use crate::commands::display;
use crate::failure::Result;
use crate::files::paths;
use crate::terminal::output;

/// The number of limits per page, and the maximum number of pages.
const PAGE: u32 = 1000;
const MAX_PAGES: usize = 100;

/// The commands for limits.
#[derive(Debug, Subcommand)]
pub enum Limits {
    /// Show the limits and the usage of an organization or a user
    Show {
        /// An organization (ID or name) or a user (ID or e-mail address)
        scope: String,
    },
    /// List organizations and users with limits of their own
    #[command(visible_alias = "ls")]
    List,
    /// Set limits; limits that are not named stay as they are
    Set(Set),
    /// Remove limits, so that those of the configuration apply again
    Clear {
        /// An organization (ID or name) or a user (ID or e-mail address)
        scope: String,
    },
}

#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("limit").required(true).multiple(true)))]
pub struct Set {
    /// An organization (ID or name) or a user (ID or e-mail address)
    scope: String,
    /// Number of nodes in clusters
    #[arg(long, value_name = "N", group = "limit")]
    instances: Option<u64>,
    /// Number of CPUs of all nodes
    #[arg(long, value_name = "N", group = "limit")]
    cpus: Option<f64>,
    /// Number of GPUs of all nodes
    #[arg(long, value_name = "N", group = "limit")]
    gpus: Option<u64>,
    /// Total size of volumes in GB
    #[arg(long, value_name = "GB", group = "limit")]
    volume_gb: Option<u64>,
    /// Total size of objects in GB
    #[arg(long, value_name = "GB", group = "limit")]
    object_gb: Option<f64>,
    /// Number of clusters that wait for capacity; 0 means no limit
    #[arg(long, value_name = "N", group = "limit")]
    waiting: Option<u64>,
    /// Total size of job files, logs and outputs in GB
    #[arg(long, value_name = "GB", group = "limit")]
    job_gb: Option<f64>,
}

pub(crate) async fn run_limits_command(ctx: &Context<'_>, limits: Limits) -> Result<()> {
    let body = match limits {
        Limits::List => fetch_all_limits(ctx).await?,
        Limits::Show { scope } => ctx.api.get(&limits_path(ctx, scope).await?, &[]).await?,
        Limits::Set(Set { scope, instances, cpus, gpus, volume_gb, object_gb, waiting, job_gb }) => {
            let patch = AdminLimitsPatch {
                instances: instances.map_or(Edit::Keep, Edit::Set),
                cpus: cpus.map_or(Edit::Keep, Edit::Set),
                gpus: gpus.map_or(Edit::Keep, Edit::Set),
                volume_gb: volume_gb.map_or(Edit::Keep, Edit::Set),
                object_gb: object_gb.map_or(Edit::Keep, Edit::Set),
                waiting: waiting.map_or(Edit::Keep, Edit::Set),
                job_gb: job_gb.map_or(Edit::Keep, Edit::Set),
            };
            ctx.api.send_json(Method::PATCH, &limits_path(ctx, scope).await?, &patch).await?
        }
        Limits::Clear { scope } => ctx.api.send_empty(Method::DELETE, &limits_path(ctx, scope).await?).await?,
    };
    display::print_body(ctx, &body, output::message_of)
}

/// Fetches all pages into the body of the first one. The message of each page is a table with a header line.
async fn fetch_all_limits(ctx: &Context<'_>) -> Result<Value> {
    let mut body = fetch_limits_page(ctx, None).await?;
    for _ in 1..MAX_PAGES {
        let Some(after) = body["next_after"].as_str().map(str::to_owned) else { break };
        let mut more = fetch_limits_page(ctx, Some(after)).await?;
        body["next_after"] = more["next_after"].take();
        let (Some(all), Some(others)) = (body["limits"].as_array_mut(), more["limits"].as_array_mut()) else { break };
        if others.is_empty() {
            break;
        }
        all.append(others);
        let lines = output::text_field(&more, "message").lines().skip(1);
        let table =
            [output::text_field(&body, "message").trim_end()].into_iter().chain(lines).collect::<Vec<_>>().join("\n");
        body["message"] = table.into();
    }
    if body["next_after"].is_string() {
        output::print_note("The list is longer; only its first part is shown.");
    }
    Ok(body)
}

async fn fetch_limits_page(ctx: &Context<'_>, after: Option<String>) -> Result<Value> {
    let limit = ("limit", PAGE.to_string());
    let query: Vec<_> = after.map(|after| ("after", after)).into_iter().chain([limit]).collect();
    ctx.api.get("/admin/limits", &query).await
}

async fn limits_path(ctx: &Context<'_>, scope: String) -> Result<String> {
    let is_id = scope.starts_with("o-") || scope.starts_with("u-");
    let found = if is_id { None } else { find_scope_id(ctx, &scope).await? };
    Ok(format!("/admin/limits/{}", paths::encode_segment(found.as_ref().unwrap_or(&scope))?))
}

/// The ID of the organization with this name, or of the user with this e-mail address; `None` for an unknown name,
/// which the engine then refuses.
async fn find_scope_id(ctx: &Context<'_>, name: &str) -> Result<Option<String>> {
    let body = ctx.api.get_all_pages("/admin/user/list", &[("limit", PAGE.to_string())], "users").await?;
    let users = || body["users"].as_array().into_iter().flatten();
    let id = |by: &str, id: &str| {
        let found = users().find(|user| output::text_field(user, by) == name)?;
        Some(output::text_field(found, id).to_owned()).filter(|id| !id.is_empty())
    };
    Ok(id("org_name", "org_id").or_else(|| id("email", "user_id")))
}
