//! GET /me

use axum::extract::State;
use tarn_api::users::UserInfoResponse;

use super::info::answer;
use crate::App;
use crate::http::answer::Outcome;
use crate::http::authenticate::Authenticated;

/// Account details, by a shorter path
///
/// The same as GET /user/info; some clients check their key with it.
#[utoipa::path(
    get,
    path = "/me",
    operation_id = "me",
    tag = "user",
    responses((status = 200, description = "The user", body = UserInfoResponse)),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn me(State(app): State<App>, Authenticated(caller): Authenticated) -> Outcome<UserInfoResponse> {
    answer(&app, &caller).await
}
