//! POST /admin/key/create

use axum::extract::State;
use tarn_api::admin::{AdminKeyCreateRequest, AdminKeyCreateResponse};
use tarn_control::operations::admin;

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::body::Body;
use crate::http::call::Call;

impl Body for AdminKeyCreateRequest {}

/// Create an API key
///
/// Create another key for a user. It is shown this once.
#[utoipa::path(
    post,
    path = "/admin/key/create",
    operation_id = "admin_key_create",
    tag = "admin",
    request_body = AdminKeyCreateRequest,
    responses(
        (status = 200, description = "The key was created", body = AdminKeyCreateResponse),
        (status = 400, description = "Invalid user ID format"),
        (status = 403, description = "Only administrators of the engine may do this"),
        (status = 404, description = "User not found"),
        (status = 409, description = "Idempotency-Key used for another call"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn create_key(
    State(app): State<App>,
    call: Call<AdminKeyCreateRequest>,
) -> Outcome<AdminKeyCreateResponse> {
    let created = admin::create_key(&app.control, &call.caller, &call.body.user_id).await?;
    Ok(Answer::ok(AdminKeyCreateResponse {
        key_id: created.id.into(),
        user_id: created.user.into(),
        api_key: created.api_key,
        message: created.message,
    }))
}
