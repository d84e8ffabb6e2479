//! GET /storage/info/{storage_id}

use axum::extract::State;
use tarn_api::storage::StorageInfoResponse;
use tarn_control::operations::storage;

use super::view;
use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;
use crate::http::id::Id;

/// Storage volume details
///
/// Everything about one volume.
#[utoipa::path(
    get,
    path = "/storage/info/{storage_id}",
    operation_id = "storage_info",
    tag = "storage",
    params(("storage_id" = String, Path)),
    responses(
        (status = 200, description = "The volume", body = StorageInfoResponse),
        (status = 400, description = "Invalid storage ID format"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Storage not found"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn info(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(volume): Id,
) -> Outcome<StorageInfoResponse> {
    let found = storage::info(&app.control, &caller, &volume).await?;
    let message = view::text(&found);
    Ok(Answer::ok(StorageInfoResponse { storage_info: view::info(found), message }))
}
