//! GET /object-storage/credentials

use axum::extract::State;
use tarn_api::object_storage::ObjectStorageCredentials;
use tarn_control::operations::object_storage;

use super::view;
use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;

/// Get the credentials of object storage
///
/// The keys that the members of the caller's organization share, and where to use them.
#[utoipa::path(
    get,
    path = "/object-storage/credentials",
    operation_id = "object_storage_credentials",
    tag = "object-storage",
    responses(
        (status = 200, description = "The credentials", body = ObjectStorageCredentials),
        (status = 403, description = "The caller is in no organization"),
        (status = 404, description = "Object storage is not enabled"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn credentials(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
) -> Outcome<ObjectStorageCredentials> {
    Ok(Answer::ok(view(object_storage::credentials(&app.control, &caller).await?)))
}
