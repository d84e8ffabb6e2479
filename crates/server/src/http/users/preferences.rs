//! GET /user/preferences

use axum::extract::State;
use tarn_api::users::UserPreferences;
use tarn_control::operations::users;
use tarn_model::Money;
use tarn_model::preferences::Preferences;

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;

/// Read preferences
///
/// What the user wants to be told.
#[utoipa::path(
    get,
    path = "/user/preferences",
    operation_id = "user_preferences",
    tag = "user",
    responses((status = 200, description = "The preferences", body = UserPreferences)),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn preferences(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
) -> Outcome<UserPreferences> {
    Ok(Answer::ok(info(users::preferences(&app.control, &caller).await?)))
}

/// Preferences as JSON.
pub(super) fn info(preferences: Preferences) -> UserPreferences {
    UserPreferences {
        notify_email_cluster_create: preferences.notify_email_cluster_create,
        notify_email_cluster_destroy: preferences.notify_email_cluster_destroy,
        autopay_enabled: preferences.autopay_enabled,
        balance_warning_threshold: preferences.balance_warning_threshold.map(Money::as_dollars),
        autopay_reload_threshold: preferences.autopay_reload_threshold.map(Money::as_dollars),
    }
}
