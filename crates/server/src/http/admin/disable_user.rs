//! POST /admin/user/disable/{user_id}

use axum::extract::State;
use tarn_api::health::MessageResponse;
use tarn_control::operations::admin;

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::call::Acting;
use crate::http::id::Id;

/// Disable a user
///
/// Shut a user out: all keys stop working at once, and what runs keeps running.
#[utoipa::path(
    post,
    path = "/admin/user/disable/{user_id}",
    operation_id = "admin_user_disable",
    tag = "admin",
    params(("user_id" = String, Path)),
    responses(
        (status = 200, description = "The user is disabled", body = MessageResponse),
        (status = 400, description = "Invalid user ID format"),
        (status = 403, description = "Only administrators of the engine may do this"),
        (status = 404, description = "User not found"),
        (status = 409, description = "Nobody can disable himself"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn disable_user(
    State(app): State<App>,
    Acting(caller): Acting,
    Id(user): Id,
) -> Outcome<MessageResponse> {
    let message = admin::disable_user(&app.control, &caller, &user, true).await?;
    Ok(Answer::ok(MessageResponse { message: Some(message) }))
}
