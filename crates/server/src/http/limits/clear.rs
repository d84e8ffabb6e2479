//! DELETE /admin/limits/{scope}

use axum::extract::State;
use tarn_api::admin::AdminLimitsInfo;
use tarn_control::operations::limits;

use super::view;
use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::call::Acting;
use crate::http::id::Id;

/// Take limits away
///
/// Take away all limits that were set for an organization, or for a user without one. Those of the configuration hold again.
#[utoipa::path(
    delete,
    path = "/admin/limits/{scope}",
    operation_id = "admin_limits_clear",
    tag = "admin",
    params(("scope" = String, Path)),
    responses(
        (status = 200, description = "The limits that hold now", body = AdminLimitsInfo),
        (status = 400, description = "Invalid ID format"),
        (status = 403, description = "Only administrators of the engine may do this"),
        (status = 404, description = "User or organization not found"),
        (status = 409, description = "Idempotency-Key used for another call"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn clear(State(app): State<App>, Acting(caller): Acting, Id(scope): Id) -> Outcome<AdminLimitsInfo> {
    Ok(Answer::ok(view::info(&limits::clear(&app.control, &caller, &scope).await?)))
}
