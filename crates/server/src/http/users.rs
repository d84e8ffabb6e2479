//! The endpoints of the tag `user`, except SSH keys: the account, the organization and the preferences of the caller.

use tarn_api::users::{OrganizationInfo, OrganizationMember, UserInfoResponse, UserPreferences, UserPreferencesPatch};
use tarn_control::operations::users::{self, OrgView, PreferencesEdit, UserView};
use tarn_model::Money;
use tarn_model::preferences::Preferences;

use crate::http::input::body::Body;
use crate::http::input::call::{Call, ReadCall};
use crate::http::limits::{limit_set, limit_usage};
use crate::http::output::response::{EndpointResult, JsonResponse};
use crate::http::output::table::Cell::{Shown, Text};
use crate::http::output::table::{Table, render_block};

/// Account details
///
/// The caller, with the balance, what runs and what it costs.
#[utoipa::path(
    get,
    path = "/user/info",
    operation_id = "user_info",
    responses((status = 200, description = "The user", body = UserInfoResponse)),
)]
pub(crate) async fn get_user(call: ReadCall) -> EndpointResult<UserInfoResponse> {
    user_info(&call).await
}

/// The response of both endpoints about the caller.
async fn user_info(call: &ReadCall) -> EndpointResult<UserInfoResponse> {
    let view = users::info(&call.control, &call.caller).await?;
    let message = user_text(&view);
    let UserView { user, org, balance, clusters, volumes, hourly_rate, limits } = view;
    Ok(JsonResponse::ok(UserInfoResponse {
        user_id: user.id.into(),
        email: user.email,
        org_id: user.org.map(Into::into),
        org_name: org.map(|org| org.name),
        balance: balance.as_dollars(),
        clusters,
        volumes,
        hourly_rate: hourly_rate.as_dollars(),
        limits: limit_set(&limits.limits),
        used: limit_usage(&limits.used),
        message,
    }))
}

fn user_text(view: &UserView) -> String {
    let organization = match &view.org {
        Some(org) => format!("{} ({})", org.name, org.id),
        None => "-".to_owned(),
    };
    let rate = format!("{} per hour", view.hourly_rate);
    render_block(&[
        ("E-mail", Text(&view.user.email)),
        ("User", Text(view.user.id.as_str())),
        ("Organization", Text(&organization)),
        ("Balance", Shown(&view.balance)),
        ("Clusters", Shown(&view.clusters)),
        ("Storage volumes", Shown(&view.volumes)),
        ("Burn rate", Text(&rate)),
    ])
}

/// Account details, by a shorter path
///
/// The same as GET /user/info; some clients check their key with it.
#[utoipa::path(
    get,
    path = "/me",
    operation_id = "me",
    tag = "user",
    responses((status = 200, description = "The user", body = UserInfoResponse)),
)]
pub(crate) async fn get_me(call: ReadCall) -> EndpointResult<UserInfoResponse> {
    user_info(&call).await
}

/// Organization details
///
/// The caller's organization with its members and its balance.
#[utoipa::path(
    get,
    path = "/user/organization/info",
    operation_id = "user_organization_info",
    responses(
        (status = 200, description = "The organization", body = OrganizationInfo),
        (status = 404, description = "The user has no organization"),
    ),
)]
pub(crate) async fn get_organization(call: ReadCall) -> EndpointResult<OrganizationInfo> {
    let view = users::organization(&call.control, &call.caller).await?;
    let message = organization_text(&view);
    let members = view.members.into_iter();
    let members =
        members.map(|user| OrganizationMember { uid: user.id.into(), email: user.email, admin: user.org_admin });
    Ok(JsonResponse::ok(OrganizationInfo {
        org_id: view.org.id.into(),
        org_name: view.org.name,
        members: members.collect(),
        balance: view.balance.as_dollars(),
        message,
    }))
}

fn organization_text(view: &OrgView) -> String {
    let mut table = Table::new(["MEMBER", "E-MAIL", "ROLE"], view.members.len());
    for user in &view.members {
        table.row([&user.id, &user.email, &if user.org_admin { "admin" } else { "member" }]);
    }
    let block = render_block(&[
        ("Organization", Text(&view.org.name)),
        ("ID", Text(view.org.id.as_str())),
        ("Balance", Shown(&view.balance)),
    ]);
    format!("{block}\n\n{}", table.render())
}

/// Read preferences
///
/// The notification and payment settings of the caller.
#[utoipa::path(
    get,
    path = "/user/preferences",
    operation_id = "user_preferences",
    responses((status = 200, description = "The preferences", body = UserPreferences)),
)]
pub(crate) async fn get_preferences(call: ReadCall) -> EndpointResult<UserPreferences> {
    Ok(JsonResponse::ok(preferences_info(users::preferences(&call.control, &call.caller).await?)))
}

/// Returns preferences as JSON.
fn preferences_info(preferences: Preferences) -> UserPreferences {
    UserPreferences {
        notify_email_cluster_create: preferences.notify_email_cluster_create,
        notify_email_cluster_destroy: preferences.notify_email_cluster_destroy,
        autopay_enabled: preferences.autopay_enabled,
        balance_warning_threshold: preferences.balance_warning_threshold.map(Money::as_dollars),
        autopay_reload_threshold: preferences.autopay_reload_threshold.map(Money::as_dollars),
    }
}

impl Body for UserPreferencesPatch {}

/// Change preferences
///
/// Change some of the preferences and get all of them. Absent fields stay unchanged, and null removes a
/// threshold.
#[utoipa::path(
    patch,
    path = "/user/preferences",
    operation_id = "user_preferences_edit",
    request_body = UserPreferencesPatch,
    responses(
        (status = 200, description = "The preferences", body = UserPreferences),
        (status = 400, description = "Thresholds that contradict each other, or autopay without a payment method"),
    ),
)]
pub(crate) async fn edit_preferences(call: Call<UserPreferencesPatch>) -> EndpointResult<UserPreferences> {
    let body = call.body;
    // The schema has refused an amount that is out of range.
    let edit = PreferencesEdit {
        notify_email_cluster_create: body.notify_email_cluster_create,
        notify_email_cluster_destroy: body.notify_email_cluster_destroy,
        autopay_enabled: body.autopay_enabled,
        balance_warning_threshold: body.balance_warning_threshold.and_then(Money::from_dollars),
        autopay_reload_threshold: body.autopay_reload_threshold.and_then(Money::from_dollars),
    };
    Ok(JsonResponse::ok(preferences_info(users::edit_preferences(&call.control, &call.caller, edit).await?)))
}
