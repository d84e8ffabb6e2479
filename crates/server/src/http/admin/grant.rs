//! POST /admin/grant

use axum::extract::State;
use tarn_api::admin::{AdminGrantRequest, AdminGrantResponse};
use tarn_control::operations::admin;
use tarn_model::Money;

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::body::Body;
use crate::http::call::Call;
use crate::http::failure::Failure;

impl Body for AdminGrantRequest {}

/// Grant balance
///
/// Give balance to an organization, or to a user without one. A negative amount takes balance back.
#[utoipa::path(
    post,
    path = "/admin/grant",
    operation_id = "admin_grant",
    tag = "admin",
    request_body = AdminGrantRequest,
    responses(
        (status = 200, description = "The balance after the grant", body = AdminGrantResponse),
        (status = 400, description = "Invalid ID format, amount or description"),
        (status = 403, description = "Only administrators of the engine may do this"),
        (status = 404, description = "User or organization not found"),
        (status = 409, description = "Idempotency-Key used for another call"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn grant(State(app): State<App>, call: Call<AdminGrantRequest>) -> Outcome<AdminGrantResponse> {
    let AdminGrantRequest { to, amount, description } = call.body;
    let amount = Money::from_dollars(amount).ok_or_else(|| Failure::invalid("invalid_amount", "not a sane amount"))?;
    let granted = admin::grant(&app.control, &call.caller, &to, amount, description).await?;
    Ok(Answer::ok(AdminGrantResponse {
        account: granted.account,
        balance: granted.balance.as_dollars(),
        message: granted.message,
    }))
}
