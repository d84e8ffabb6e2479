//! GET /admin/limits/{scope}

use axum::extract::State;
use tarn_api::admin::AdminLimitsInfo;
use tarn_control::operations::limits;

use super::view;
use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;
use crate::http::id::Id;

/// Limits of an organization
///
/// What an organization, or a user without one, may have, and what it has. The ID of a user means his organization, if he has one.
#[utoipa::path(
    get,
    path = "/admin/limits/{scope}",
    operation_id = "admin_limits_info",
    tag = "admin",
    params(("scope" = String, Path)),
    responses(
        (status = 200, description = "The limits", body = AdminLimitsInfo),
        (status = 400, description = "Invalid ID format"),
        (status = 403, description = "Only administrators of the engine may do this"),
        (status = 404, description = "User or organization not found"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn info(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(scope): Id,
) -> Outcome<AdminLimitsInfo> {
    Ok(Answer::ok(view::info(&limits::info(&app.control, &caller, &scope).await?)))
}
