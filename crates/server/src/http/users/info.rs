//! GET /user/info

use axum::extract::State;
use tarn_api::users::UserInfoResponse;
use tarn_control::Caller;
use tarn_control::operations::users::{self, UserView};

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;
use crate::http::limits::view as limits_view;
use crate::http::table::Cell::{Shown, Text};
use crate::http::table::block;

/// Account details
///
/// Who calls, with the balance, what runs and what it costs.
#[utoipa::path(
    get,
    path = "/user/info",
    operation_id = "user_info",
    tag = "user",
    responses((status = 200, description = "The user", body = UserInfoResponse)),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn info(State(app): State<App>, Authenticated(caller): Authenticated) -> Outcome<UserInfoResponse> {
    answer(&app, &caller).await
}

/// What both endpoints about the caller answer.
pub(super) async fn answer(app: &App, caller: &Caller) -> Outcome<UserInfoResponse> {
    let view = users::info(&app.control, caller).await?;
    let message = text(&view);
    let UserView { user, org, balance, clusters, volumes, hourly_rate, limits } = view;
    Ok(Answer::ok(UserInfoResponse {
        user_id: user.id.into(),
        email: user.email,
        org_id: user.org.map(Into::into),
        org_name: org.map(|org| org.name),
        balance: balance.as_dollars(),
        clusters,
        volumes,
        hourly_rate: hourly_rate.as_dollars(),
        limits: limits_view::set(&limits.limits),
        used: limits_view::usage(&limits.used),
        message,
    }))
}

fn text(view: &UserView) -> String {
    let organization = match &view.org {
        Some(org) => format!("{} ({})", org.name, org.id),
        None => "-".to_owned(),
    };
    let rate = format!("{} per hour", view.hourly_rate);
    block(&[
        ("E-mail", Text(&view.user.email)),
        ("User", Text(view.user.id.as_str())),
        ("Organization", Text(&organization)),
        ("Balance", Shown(&view.balance)),
        ("Clusters", Shown(&view.clusters)),
        ("Storage volumes", Shown(&view.volumes)),
        ("Burn rate", Text(&rate)),
    ])
}
