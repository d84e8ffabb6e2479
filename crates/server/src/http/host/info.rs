//! GET /admin/host/info

use axum::extract::State;
use tarn_api::host::HostInfoResponse;
use tarn_control::operations::host;

use super::view;
use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;

/// Show the host
///
/// What the host has, what instances hold of it, whether it is drained, and its GPUs.
#[utoipa::path(
    get,
    path = "/admin/host/info",
    operation_id = "admin_host_info",
    tag = "admin",
    responses(
        (status = 200, description = "The host", body = HostInfoResponse),
        (status = 403, description = "Only administrators of the engine may do this"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn info(State(app): State<App>, Authenticated(caller): Authenticated) -> Outcome<HostInfoResponse> {
    let host = host::info(&app.control, &caller).await?;
    let message = view::text(&host);
    Ok(Answer::ok(HostInfoResponse { host: view::host(host), message }))
}
