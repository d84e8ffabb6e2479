//! GET /object-storage/bucket/list

use axum::extract::State;
use tarn_api::object_storage::BucketListResponse;
use tarn_control::operations::object_storage;

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;

/// List buckets
///
/// The names of the buckets of the caller's organization.
#[utoipa::path(
    get,
    path = "/object-storage/bucket/list",
    operation_id = "object_storage_bucket_list",
    tag = "object-storage",
    responses(
        (status = 200, description = "The buckets", body = BucketListResponse),
        (status = 403, description = "The caller is in no organization"),
        (status = 404, description = "Object storage is not enabled"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn list_buckets(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
) -> Outcome<BucketListResponse> {
    let buckets = object_storage::list_buckets(&app.control, &caller).await?;
    let message = match buckets.as_slice() {
        [] => "No buckets. Make one with `tp object-storage bucket create NAME`.".to_owned(),
        names => names.join("\n"),
    };
    Ok(Answer::ok(BucketListResponse { buckets, message }))
}
