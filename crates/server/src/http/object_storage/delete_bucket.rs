//! DELETE /object-storage/bucket/delete/{bucket_name}

use axum::extract::State;
use axum::http::StatusCode;
use tarn_control::operations::object_storage;

use crate::App;
use crate::http::call::Acting;
use crate::http::failure::Failure;
use crate::http::id::Id;

/// Delete a bucket
///
/// Remove an empty bucket of the caller's organization. Uploads that were begun in it are given up.
#[utoipa::path(
    delete,
    path = "/object-storage/bucket/delete/{bucket_name}",
    operation_id = "object_storage_bucket_delete",
    tag = "object-storage",
    params(("bucket_name" = String, Path)),
    responses(
        (status = 204, description = "The bucket was deleted"),
        (status = 403, description = "The caller is in no organization"),
        (status = 404, description = "Bucket not found, or object storage not enabled"),
        (status = 409, description = "The bucket is not empty"),
        (status = 422, description = "Validation Error"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn delete_bucket(
    State(app): State<App>,
    Acting(caller): Acting,
    Id(bucket_name): Id,
) -> Result<StatusCode, Failure> {
    object_storage::delete_bucket(&app.control, &caller, &bucket_name).await?;
    Ok(StatusCode::NO_CONTENT)
}
