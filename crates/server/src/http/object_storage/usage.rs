//! GET /object-storage/usage

use axum::extract::State;
use tarn_api::object_storage::ObjectStorageUsage;
use tarn_control::operations::object_storage::{self, UsageView};

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;
use crate::http::table::{Cell, block};

/// Get the usage of object storage
///
/// How much the caller's organization has in object storage, how much it may have, and how often it was used.
#[utoipa::path(
    get,
    path = "/object-storage/usage",
    operation_id = "object_storage_usage",
    tag = "object-storage",
    responses(
        (status = 200, description = "The usage", body = ObjectStorageUsage),
        (status = 403, description = "The caller is in no organization"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn usage(State(app): State<App>, Authenticated(caller): Authenticated) -> Outcome<ObjectStorageUsage> {
    let view = object_storage::usage(&app.control, &caller).await?;
    let message = message(&view);
    let UsageView { enabled, bytes, objects, requests, buckets, quota_bytes } = view;
    Ok(Answer::ok(ObjectStorageUsage { enabled, bytes, objects, requests, buckets, quota_bytes, message }))
}

fn message(view: &UsageView) -> String {
    let quota = view.quota_bytes.map_or("none".to_owned(), |bytes| bytes.to_string());
    block(&[
        ("Enabled", Cell::Text(if view.enabled { "yes" } else { "no" })),
        ("Bytes", Cell::Shown(&view.bytes)),
        ("Quota", Cell::Text(&quota)),
        ("Objects", Cell::Shown(&view.objects)),
        ("Buckets", Cell::Shown(&view.buckets)),
        ("Requests", Cell::Shown(&view.requests)),
    ])
}
