//! POST /object-storage/rotate-keys

use axum::extract::State;
use tarn_api::object_storage::ObjectStorageCredentials;
use tarn_control::operations::object_storage;

use super::view;
use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::call::Acting;

/// Replace the keys of object storage
///
/// Give the caller's organization new keys. The old ones stop at once, for all its members, and cannot be brought back;
/// URLs that were signed with them stop, too.
#[utoipa::path(
    post,
    path = "/object-storage/rotate-keys",
    operation_id = "object_storage_rotate_keys",
    tag = "object-storage",
    responses(
        (status = 200, description = "The new credentials", body = ObjectStorageCredentials),
        (status = 403, description = "The caller is in no organization"),
        (status = 404, description = "Object storage is not enabled"),
        (status = 409, description = "Idempotency-Key used for another call"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn rotate_keys(State(app): State<App>, Acting(caller): Acting) -> Outcome<ObjectStorageCredentials> {
    Ok(Answer::ok(view(object_storage::rotate_keys(&app.control, &caller).await?)))
}
