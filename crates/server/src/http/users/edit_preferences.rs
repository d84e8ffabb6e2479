//! PATCH /user/preferences

use axum::extract::State;
use tarn_api::users::{UserPreferences, UserPreferencesPatch};
use tarn_control::operations::users::{self, PreferencesEdit};
use tarn_model::Money;

use super::preferences::info;
use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::body::Body;
use crate::http::call::Call;

impl Body for UserPreferencesPatch {}

/// Change preferences
///
/// Change some of the preferences and get all of them. What is absent stays as it is, and a threshold that is null is taken
/// away.
#[utoipa::path(
    patch,
    path = "/user/preferences",
    operation_id = "user_preferences_edit",
    tag = "user",
    request_body = UserPreferencesPatch,
    responses(
        (status = 200, description = "The preferences", body = UserPreferences),
        (status = 400, description = "Thresholds that contradict each other, or autopay without a payment method"),
        (status = 409, description = "Idempotency-Key used for another call"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn edit_preferences(
    State(app): State<App>,
    call: Call<UserPreferencesPatch>,
) -> Outcome<UserPreferences> {
    let body = call.body;
    let edit = PreferencesEdit {
        notify_email_cluster_create: body.notify_email_cluster_create,
        notify_email_cluster_destroy: body.notify_email_cluster_destroy,
        autopay_enabled: body.autopay_enabled,
        balance_warning_threshold: body.balance_warning_threshold.map(amount),
        autopay_reload_threshold: body.autopay_reload_threshold.map(amount),
    };
    Ok(Answer::ok(info(users::edit_preferences(&app.control, &call.caller, edit).await?)))
}

/// The schema has refused what is no sane amount.
fn amount(dollars: Option<f64>) -> Option<Money> {
    dollars.and_then(Money::from_dollars)
}
