//! POST /object-storage/enable

use axum::extract::State;
use tarn_api::object_storage::ObjectStorageCredentials;
use tarn_control::operations::object_storage;

use super::view;
use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::call::Acting;

/// Enable object storage
///
/// Give the caller's organization S3-compatible object storage, and return the keys that all its members share. Where it is
/// enabled already, the keys stay as they are.
#[utoipa::path(
    post,
    path = "/object-storage/enable",
    operation_id = "object_storage_enable",
    tag = "object-storage",
    responses(
        (status = 200, description = "Object storage is enabled", body = ObjectStorageCredentials),
        (status = 403, description = "The caller is in no organization"),
        (status = 409, description = "It was disabled and is still being emptied"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn enable(State(app): State<App>, Acting(caller): Acting) -> Outcome<ObjectStorageCredentials> {
    Ok(Answer::ok(view(object_storage::enable(&app.control, &caller).await?)))
}
