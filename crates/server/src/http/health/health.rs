//! POST /health

use tarn_api::health::{HealthRequest, MessageResponse};

use crate::http::answer::{Answer, Outcome};
use crate::http::body::Body;
use crate::http::call::Call;

impl Body for HealthRequest {}

/// Whether this client may go on
///
/// The command-line client calls it before every command and prints the message, if there is one.
#[utoipa::path(
    post,
    path = "/health",
    operation_id = "health",
    tag = "system",
    request_body = HealthRequest,
    responses((status = 200, description = "The client may go on", body = MessageResponse)),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn health(_call: Call<HealthRequest>) -> Outcome<MessageResponse> {
    Ok(Answer::ok(MessageResponse { message: None }))
}
