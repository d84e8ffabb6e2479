//! PUT /object-storage/bucket/create/{bucket_name}

use axum::extract::State;
use tarn_api::object_storage::BucketCreateResponse;
use tarn_control::operations::object_storage;

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::call::Acting;
use crate::http::id::Id;

/// Create a bucket
///
/// Make a bucket in the caller's organization. Other organizations may have one of the same name.
#[utoipa::path(
    put,
    path = "/object-storage/bucket/create/{bucket_name}",
    operation_id = "object_storage_bucket_create",
    tag = "object-storage",
    params(("bucket_name" = String, Path)),
    responses(
        (status = 201, description = "The bucket was created", body = BucketCreateResponse),
        (status = 400, description = "Invalid bucket name"),
        (status = 403, description = "The caller is in no organization"),
        (status = 404, description = "Object storage is not enabled"),
        (status = 409, description = "Bucket exists, or too many buckets"),
        (status = 422, description = "Validation Error"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn create_bucket(
    State(app): State<App>,
    Acting(caller): Acting,
    Id(bucket_name): Id,
) -> Outcome<BucketCreateResponse> {
    let message = object_storage::create_bucket(&app.control, &caller, &bucket_name).await?;
    Ok(Answer::created(BucketCreateResponse { bucket_name, message }))
}
