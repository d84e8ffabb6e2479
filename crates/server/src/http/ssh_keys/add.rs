//! POST /user/ssh-key/add

use axum::extract::State;
use tarn_api::ssh_keys::{SSHKeyCreateRequest, SSHKeyCreateResponse};
use tarn_control::operations::ssh_keys;

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::body::Body;
use crate::http::call::Call;

impl Body for SSHKeyCreateRequest {}

/// Add an SSH key
///
/// Save a public key. It opens all clusters of the user and the organization, within seconds
/// also those that run.
#[utoipa::path(
    post,
    path = "/user/ssh-key/add",
    operation_id = "user_ssh_key_add",
    tag = "user",
    request_body = SSHKeyCreateRequest,
    responses(
        (status = 200, description = "The key was saved", body = SSHKeyCreateResponse),
        (status = 400, description = "Not an SSH public key, or invalid name"),
        (status = 409, description = "Key saved already, or too many keys"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn add(State(app): State<App>, call: Call<SSHKeyCreateRequest>) -> Outcome<SSHKeyCreateResponse> {
    let SSHKeyCreateRequest { public_key, name } = call.body;
    let added = ssh_keys::add(&app.control, &call.caller, &public_key, name).await?;
    Ok(Answer::ok(SSHKeyCreateResponse { key_id: added.key.into(), message: added.message }))
}
