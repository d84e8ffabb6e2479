//! POST /admin/user/enable/{user_id}

use axum::extract::State;
use tarn_api::health::MessageResponse;
use tarn_control::operations::admin;

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::call::Acting;
use crate::http::id::Id;

/// Enable a user
///
/// Let a user in again, with the same keys.
#[utoipa::path(
    post,
    path = "/admin/user/enable/{user_id}",
    operation_id = "admin_user_enable",
    tag = "admin",
    params(("user_id" = String, Path)),
    responses(
        (status = 200, description = "The user is enabled", body = MessageResponse),
        (status = 400, description = "Invalid user ID format"),
        (status = 403, description = "Only administrators of the engine may do this"),
        (status = 404, description = "User not found"),
        (status = 409, description = "Idempotency-Key used for another call"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn enable_user(
    State(app): State<App>,
    Acting(caller): Acting,
    Id(user): Id,
) -> Outcome<MessageResponse> {
    let message = admin::disable_user(&app.control, &caller, &user, false).await?;
    Ok(Answer::ok(MessageResponse { message: Some(message) }))
}
