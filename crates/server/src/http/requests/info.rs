//! GET /request/info/{request_id}

use axum::extract::State;
use tarn_api::requests::RequestInfoResponse;
use tarn_control::operations::requests;

use super::view;
use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;
use crate::http::id::Id;

/// Poll a request
///
/// How far a request is. Ask again after the seconds in Retry-After until it is COMPLETED or FAILED.
#[utoipa::path(
    get,
    path = "/request/info/{request_id}",
    operation_id = "request_info",
    tag = "requests",
    params(("request_id" = String, Path)),
    responses(
        (
            status = 200,
            description = "The request",
            body = RequestInfoResponse,
            headers(("Retry-After" = i32, description = "Seconds; while the request is not COMPLETED or FAILED")),
        ),
        (status = 400, description = "Invalid request ID format"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Request not found"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn info(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(request): Id,
) -> Outcome<RequestInfoResponse> {
    let found = requests::info(&app.control, &caller, &request).await?;
    let ended = found.request.status.is_terminal();
    let answer = Answer::ok(view::info(found));
    Ok(if ended { answer } else { answer.again_after(1) })
}
