//! The endpoints for the limits of organizations and users. `control` decides whether the caller may set them.

use tarn_api::admin::{AdminLimitsInfo, AdminLimitsListResponse, AdminLimitsPatch, LimitSet, LimitUsage};
use tarn_control::operations::limits::{self, LimitsEdit, LimitsView};
use tarn_control::page::{DEFAULT_LIMIT, MAX_LIMIT};
use tarn_model::limits::{Amounts, Limits};
use utoipa::IntoParams;

use crate::http::input::body::Body;
use crate::http::input::call::{Call, ChangeCall, ReadCall};
use crate::http::input::id::Id;
use crate::http::input::query::{Fields, FromQuery, Params};
use crate::http::output::response::{EndpointResult, JsonResponse};
use crate::http::output::table::Table;

const BYTES_PER_GIGABYTE: f64 = 1e9;

const MILLI_PER_CPU: f64 = 1000.0;

/// The parameters of the list of limits.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct LimitsQuery {
    /// Only organizations and users after this ID.
    after: Option<String>,
    /// Maximum number of rows.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
}

impl FromQuery for LimitsQuery {
    fn from_query(fields: &mut Fields) -> Self {
        let limit = fields.number("limit", 1..=i64::from(MAX_LIMIT));
        LimitsQuery { after: fields.text("after"), limit: limit.and_then(|limit| u32::try_from(limit).ok()) }
    }
}

/// List limits
///
/// The organizations and users with their own limits, in the order of their IDs, with their limits and what they use.
#[utoipa::path(
    get,
    path = "/admin/limits",
    operation_id = "admin_limits_list",
    params(LimitsQuery),
    responses((status = 200, description = "The limits", body = AdminLimitsListResponse)),
)]
pub(crate) async fn list_limits(
    call: ReadCall,
    Params(LimitsQuery { after, limit }): Params<LimitsQuery>,
) -> EndpointResult<AdminLimitsListResponse> {
    let found = limits::list(&call.control, &call.caller, after.as_deref().unwrap_or_default(), limit).await?;
    let is_full = found.len() >= limit.unwrap_or(DEFAULT_LIMIT) as usize;
    let next_after = found.last().filter(|_| is_full).map(|last| last.scope.clone());
    let message =
        if found.is_empty() { "No organization or user has its own limits.".to_owned() } else { limits_table(&found) };
    Ok(JsonResponse::ok(AdminLimitsListResponse {
        limits: found.iter().map(limits_info).collect(),
        next_after,
        message,
    }))
}

fn limits_table(found: &[LimitsView]) -> String {
    let mut table = Table::new(
        ["SCOPE", "INSTANCES", "CPUS", "GPUS", "VOLUMES (GB)", "OBJECTS (GB)", "WAITING", "JOBS (GB)"],
        found.len(),
    );
    for one in found {
        let (limits, used) = (limit_set(&one.limits), limit_usage(&one.used));
        table.row([
            &one.scope,
            &used_of_limit(&used.instances, limits.instances),
            &used_of_limit(&used.cpus, limits.cpus),
            &used_of_limit(&used.gpus, limits.gpus),
            &used_of_limit(&used.volume_gb, limits.volume_gb),
            &used_of_limit(&used.object_gb, limits.object_gb),
            &used_of_limit(&used.waiting, limits.waiting.filter(|limit| *limit > 0)),
            &used_of_limit(&used.job_gb, limits.job_gb),
        ]);
    }
    table.render()
}

/// Limits of an organization
///
/// The limits of an organization, or of a user without one, and what it uses. The ID of a user stands for their
/// organization, if they have one.
#[utoipa::path(
    get,
    path = "/admin/limits/{scope}",
    operation_id = "admin_limits_info",
    params(("scope" = String, Path)),
    responses(
        (status = 200, description = "The limits", body = AdminLimitsInfo),
        (status = 400, description = "Invalid ID format"),
        (status = 404, description = "User or organization not found"),
    ),
)]
pub(crate) async fn get_limits(call: ReadCall, Id(scope): Id) -> EndpointResult<AdminLimitsInfo> {
    Ok(JsonResponse::ok(limits_info(&limits::info(&call.control, &call.caller, &scope).await?)))
}

impl Body for AdminLimitsPatch {}

/// Set limits
///
/// Change the limits of an organization, or of a user without one. Absent fields stay unchanged, and null restores the
/// default of the configuration. Existing resources stay, even if they exceed the new limits.
#[utoipa::path(
    patch,
    path = "/admin/limits/{scope}",
    operation_id = "admin_limits_edit",
    params(("scope" = String, Path)),
    request_body = AdminLimitsPatch,
    responses(
        (status = 200, description = "The limits in effect", body = AdminLimitsInfo),
        (status = 400, description = "Invalid ID format or limit"),
        (status = 404, description = "User or organization not found"),
    ),
)]
pub(crate) async fn edit_limits(Id(scope): Id, call: Call<AdminLimitsPatch>) -> EndpointResult<AdminLimitsInfo> {
    let body = call.body;
    let edit = LimitsEdit {
        instances: body.instances,
        cpu_milli: body.cpus.and_then(|cpus| Some(to_stored_unit(cpus, MILLI_PER_CPU))),
        gpus: body.gpus,
        volume_gb: body.volume_gb,
        object_bytes: body.object_gb.and_then(|gigabytes| Some(to_stored_unit(gigabytes, BYTES_PER_GIGABYTE))),
        waiting: body.waiting,
        job_bytes: body.job_gb.and_then(|gigabytes| Some(to_stored_unit(gigabytes, BYTES_PER_GIGABYTE))),
    };
    Ok(JsonResponse::ok(limits_info(&limits::edit(&call.control, &call.caller, &scope, edit).await?)))
}

/// Clear limits
///
/// Remove all limits that were set for an organization, or for a user without one. The defaults of the configuration
/// apply again.
#[utoipa::path(
    delete,
    path = "/admin/limits/{scope}",
    operation_id = "admin_limits_clear",
    params(("scope" = String, Path)),
    responses(
        (status = 200, description = "The limits in effect", body = AdminLimitsInfo),
        (status = 400, description = "Invalid ID format"),
        (status = 404, description = "User or organization not found"),
    ),
)]
pub(crate) async fn clear_limits(call: ChangeCall, Id(scope): Id) -> EndpointResult<AdminLimitsInfo> {
    Ok(JsonResponse::ok(limits_info(&limits::clear(&call.control, &call.caller, &scope).await?)))
}

fn limits_info(view: &LimitsView) -> AdminLimitsInfo {
    AdminLimitsInfo {
        scope: view.scope.clone(),
        own: limit_set(&view.own),
        limits: limit_set(&view.limits),
        used: limit_usage(&view.used),
        message: limits_text(view),
    }
}

/// Returns limits in the units of the API.
pub(crate) fn limit_set(limits: &Limits) -> LimitSet {
    LimitSet {
        instances: limits.instances,
        cpus: limits.cpu_milli.map(|milli| milli as f64 / 1000.0),
        gpus: limits.gpus,
        volume_gb: limits.volume_gb,
        object_gb: limits.object_bytes.map(|bytes| bytes as f64 / BYTES_PER_GIGABYTE),
        waiting: limits.waiting,
        job_gb: limits.job_bytes.map(|bytes| bytes as f64 / BYTES_PER_GIGABYTE),
    }
}

/// Returns what is used, in the units of the API.
pub(crate) fn limit_usage(used: &Amounts) -> LimitUsage {
    LimitUsage {
        instances: used.instances,
        cpus: used.cpu_milli as f64 / 1000.0,
        gpus: used.gpus,
        volume_gb: used.volume_gb,
        object_gb: used.object_bytes as f64 / BYTES_PER_GIGABYTE,
        waiting: used.waiting,
        job_gb: used.job_bytes as f64 / BYTES_PER_GIGABYTE,
    }
}

/// Converts a limit of the API to the stored unit; the schema has bounded it.
fn to_stored_unit(amount: f64, unit: f64) -> u64 {
    (amount * unit).round() as u64
}

fn limits_text(view: &LimitsView) -> String {
    let (own, all, used) = (limit_set(&view.own), limit_set(&view.limits), limit_usage(&view.used));
    let mut table = Table::new(["LIMIT", "MAY HAVE", "HAS", "SET BY"], 7);
    let waiting = all.waiting.filter(|limit| *limit > 0);
    for (what, own, limit, used) in [
        ("instances", own.instances.is_some(), limit_or_none(all.instances), used.instances.to_string()),
        ("CPUs", own.cpus.is_some(), limit_or_none(all.cpus), used.cpus.to_string()),
        ("GPUs", own.gpus.is_some(), limit_or_none(all.gpus), used.gpus.to_string()),
        ("volumes (GB)", own.volume_gb.is_some(), limit_or_none(all.volume_gb), used.volume_gb.to_string()),
        ("objects (GB)", own.object_gb.is_some(), limit_or_none(all.object_gb), used.object_gb.to_string()),
        ("clusters that wait", own.waiting.is_some(), limit_or_none(waiting), used.waiting.to_string()),
        ("jobs (GB)", own.job_gb.is_some(), limit_or_none(all.job_gb), used.job_gb.to_string()),
    ] {
        table.row([&what, &limit, &used, &if own { "an administrator" } else { "the configuration" }]);
    }
    format!("Limits of {}\n\n{}", view.scope, table.render())
}

/// Renders what is used of a limit, for a cell.
fn used_of_limit(used: &impl ToString, limit: Option<impl ToString>) -> String {
    match limit {
        Some(limit) => format!("{} of {}", used.to_string(), limit.to_string()),
        None => used.to_string(),
    }
}

fn limit_or_none(limit: Option<impl ToString>) -> String {
    limit.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string())
}
