//! DELETE /admin/key/revoke/{key_id}

use axum::extract::State;
use tarn_api::health::MessageResponse;
use tarn_control::operations::admin;

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::call::Acting;
use crate::http::id::Id;

/// Revoke an API key
///
/// End a key at once.
#[utoipa::path(
    delete,
    path = "/admin/key/revoke/{key_id}",
    operation_id = "admin_key_revoke",
    tag = "admin",
    params(("key_id" = String, Path)),
    responses(
        (status = 200, description = "The key no longer works", body = MessageResponse),
        (status = 400, description = "Invalid key ID format"),
        (status = 403, description = "Only administrators of the engine may do this"),
        (status = 404, description = "Key not found"),
        (status = 409, description = "Nobody can revoke the key he calls with"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn revoke_key(
    State(app): State<App>,
    Acting(caller): Acting,
    Id(key): Id,
) -> Outcome<MessageResponse> {
    let message = admin::revoke_key(&app.control, &caller, &key).await?;
    Ok(Answer::ok(MessageResponse { message: Some(message) }))
}
