//! DELETE /user/ssh-key/remove/{key_id}

use axum::extract::State;
use tarn_api::health::MessageResponse;
use tarn_control::operations::ssh_keys;

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::call::Acting;
use crate::http::id::Id;

/// Remove an SSH key
///
/// Forget a saved key. Within seconds it opens nothing any more, also no cluster of the user and the organization to which it
/// was given at its creation.
#[utoipa::path(
    delete,
    path = "/user/ssh-key/remove/{key_id}",
    operation_id = "user_ssh_key_remove",
    tag = "user",
    params(("key_id" = String, Path)),
    responses(
        (status = 200, description = "The key was removed", body = MessageResponse),
        (status = 400, description = "Invalid SSH key ID format"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "SSH key not found"),
        (status = 409, description = "Idempotency-Key used for another call"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn remove(State(app): State<App>, Acting(caller): Acting, Id(key): Id) -> Outcome<MessageResponse> {
    let message = ssh_keys::remove(&app.control, &caller, &key).await?;
    Ok(Answer::ok(MessageResponse { message: Some(message) }))
}
