//! POST /admin/user/create

use axum::extract::State;
use tarn_api::admin::{AdminUserCreateRequest, AdminUserCreateResponse};
use tarn_control::operations::admin::{self, NewUser};

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::body::Body;
use crate::http::call::Call;

impl Body for AdminUserCreateRequest {}

/// Create a user
///
/// Create a user with an API key, which is shown this once. An unknown organization is made, a known one gets the user.
#[utoipa::path(
    post,
    path = "/admin/user/create",
    operation_id = "admin_user_create",
    tag = "admin",
    request_body = AdminUserCreateRequest,
    responses(
        (status = 200, description = "The user was created", body = AdminUserCreateResponse),
        (status = 400, description = "Invalid e-mail address or name of an organization"),
        (status = 403, description = "Only administrators of the engine may do this"),
        (status = 409, description = "There is a user with this e-mail address already"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn create_user(
    State(app): State<App>,
    call: Call<AdminUserCreateRequest>,
) -> Outcome<AdminUserCreateResponse> {
    let AdminUserCreateRequest { email, org_name } = call.body;
    let created = admin::create_user(&app.control, &call.caller, NewUser { email, org_name }).await?;
    Ok(Answer::ok(AdminUserCreateResponse {
        user_id: created.user.into(),
        org_id: created.org.map(Into::into),
        api_key: created.api_key,
        message: created.message,
    }))
}
