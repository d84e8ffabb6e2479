//! GET /admin/limits

use axum::extract::State;
use tarn_api::admin::AdminLimitsListResponse;
use tarn_control::operations::limits::{self, LimitsView};
use tarn_control::page::{DEFAULT_LIMIT, MAX_LIMIT};
use utoipa::IntoParams;

use super::view;
use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;
use crate::http::query::{Fields, FromQuery, Params};
use crate::http::table::Table;

/// The parameters of this endpoint.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct LimitsQuery {
    /// Only those after this ID.
    after: Option<String>,
    /// At most so many.
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
/// The organizations and users that have limits of their own, in the order of their IDs, with what they may have and what they have.
#[utoipa::path(
    get,
    path = "/admin/limits",
    operation_id = "admin_limits_list",
    tag = "admin",
    params(LimitsQuery),
    responses(
        (status = 200, description = "The limits", body = AdminLimitsListResponse),
        (status = 403, description = "Only administrators of the engine may do this"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn list(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Params(LimitsQuery { after, limit }): Params<LimitsQuery>,
) -> Outcome<AdminLimitsListResponse> {
    let found = limits::list(&app.control, &caller, after.as_deref().unwrap_or_default(), limit).await?;
    let is_full = found.len() >= limit.unwrap_or(DEFAULT_LIMIT) as usize;
    let next_after = found.last().filter(|_| is_full).map(|last| last.scope.clone());
    let message = if found.is_empty() { "Nobody has limits of his own.".to_owned() } else { table(&found) };
    Ok(Answer::ok(AdminLimitsListResponse { limits: found.iter().map(view::info).collect(), next_after, message }))
}

fn table(found: &[LimitsView]) -> String {
    let mut table = Table::new(["SCOPE", "INSTANCES", "CPUS", "GPUS", "VOLUMES (GB)", "OBJECTS (GB)"], found.len());
    for one in found {
        let (limits, used) = (view::set(&one.limits), view::usage(&one.used));
        table.row([
            &one.scope,
            &view::of(&used.instances, limits.instances),
            &view::of(&used.cpus, limits.cpus),
            &view::of(&used.gpus, limits.gpus),
            &view::of(&used.volume_gb, limits.volume_gb),
            &view::of(&used.object_gb, limits.object_gb),
        ]);
    }
    table.render()
}
