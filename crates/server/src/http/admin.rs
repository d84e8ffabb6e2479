//! The endpoints for administrators of the engine. `control` decides whether the caller is one.

use tarn_api::admin::{
    AdminGrantRequest, AdminGrantResponse, AdminKeyCreateRequest, AdminKeyCreateResponse, AdminKeyInfo,
    AdminKeyListResponse, AdminUserCreateRequest, AdminUserCreateResponse, AdminUserInfo, AdminUserListResponse,
    EventInfo, EventListResponse,
};
use tarn_api::health::MessageResponse;
use tarn_control::operations::admin::{self, ApiKey, NewUser, Recorded, UserRow};
use tarn_control::page::MAX_LIMIT;
use tarn_model::Money;
use utoipa::IntoParams;

use crate::http::input::body::Body;
use crate::http::input::call::{Call, ChangeCall, ReadCall};
use crate::http::input::id::Id;
use crate::http::input::listing::PageQuery;
use crate::http::input::query::{Fields, FromQuery, Params};
use crate::http::output::failure::Failure;
use crate::http::output::response::{EndpointResult, JsonResponse};
use crate::http::output::table::{Dash, Table, append_next_page};

impl Body for AdminUserCreateRequest {}

/// Create a user
///
/// Create a user with an API key, which is shown only once. An unknown organization is created; a known one gets the
/// user as a member.
#[utoipa::path(
    post,
    path = "/admin/user/create",
    operation_id = "admin_user_create",
    request_body = AdminUserCreateRequest,
    responses(
        (status = 200, description = "The user was created", body = AdminUserCreateResponse),
        (status = 400, description = "Invalid e-mail address or organization name"),
        (status = 409, description = "A user with this e-mail address exists already"),
    ),
)]
pub(crate) async fn create_user(call: Call<AdminUserCreateRequest>) -> EndpointResult<AdminUserCreateResponse> {
    let AdminUserCreateRequest { email, org_name } = call.body;
    let created = admin::create_user(&call.control, &call.caller, NewUser { email, org_name }).await?;
    Ok(JsonResponse::ok(AdminUserCreateResponse {
        user_id: created.user.into(),
        org_id: created.org.map(Into::into),
        api_key: created.api_key,
        message: created.message,
    }))
}

/// List users
///
/// Every user of the engine, newest first.
#[utoipa::path(
    get,
    path = "/admin/user/list",
    operation_id = "admin_user_list",
    params(PageQuery),
    responses(
        (status = 200, description = "The users", body = AdminUserListResponse),
        (status = 400, description = "Invalid cursor"),
    ),
)]
pub(crate) async fn list_users(
    call: ReadCall,
    Params(PageQuery { limit, cursor }): Params<PageQuery>,
) -> EndpointResult<AdminUserListResponse> {
    let page = admin::list_users(&call.control, &call.caller, limit, cursor).await?;
    let mut message = user_table(&page.items);
    append_next_page(&mut message, page.next_cursor.as_deref());
    let users = page.items.into_iter().map(admin_user_info).collect();
    Ok(JsonResponse::ok(AdminUserListResponse { users, next_cursor: page.next_cursor, message }))
}

fn user_table(rows: &[UserRow]) -> String {
    let mut table = Table::new(["ID", "E-MAIL", "ORGANIZATION", "ROLE", "BALANCE", "STATUS", "CREATED"], rows.len());
    for UserRow { user, org_name, balance } in rows {
        let role = match (user.engine_admin, user.org_admin) {
            (true, _) => "engine admin",
            (false, true) => "organization admin",
            (false, false) => "member",
        };
        let status = if user.disabled { "disabled" } else { "enabled" };
        table.row([&user.id, &user.email, &Dash(org_name.as_deref()), &role, balance, &status, &user.created]);
    }
    table.render()
}

fn admin_user_info(row: UserRow) -> AdminUserInfo {
    let UserRow { user, org_name, balance } = row;
    AdminUserInfo {
        user_id: user.id.into(),
        email: user.email,
        org_id: user.org.map(Into::into),
        org_name,
        org_admin: user.org_admin,
        engine_admin: user.engine_admin,
        disabled: user.disabled,
        balance: balance.as_dollars(),
        created_at: user.created.to_string(),
    }
}

/// Disable a user
///
/// Disable a user: all keys stop working at once, and what runs keeps running.
#[utoipa::path(
    post,
    path = "/admin/user/disable/{user_id}",
    operation_id = "admin_user_disable",
    params(("user_id" = String, Path)),
    responses(
        (status = 200, description = "The user is disabled", body = MessageResponse),
        (status = 400, description = "Invalid user ID format"),
        (status = 404, description = "User not found"),
        (status = 409, description = "Administrators cannot disable themselves"),
    ),
)]
pub(crate) async fn disable_user(call: ChangeCall, Id(user): Id) -> EndpointResult<MessageResponse> {
    let message = admin::disable_user(&call.control, &call.caller, &user, true).await?;
    Ok(JsonResponse::ok(MessageResponse { message: Some(message) }))
}

/// Enable a user
///
/// Enable a user again, with the same keys.
#[utoipa::path(
    post,
    path = "/admin/user/enable/{user_id}",
    operation_id = "admin_user_enable",
    params(("user_id" = String, Path)),
    responses(
        (status = 200, description = "The user is enabled", body = MessageResponse),
        (status = 400, description = "Invalid user ID format"),
        (status = 404, description = "User not found"),
    ),
)]
pub(crate) async fn enable_user(call: ChangeCall, Id(user): Id) -> EndpointResult<MessageResponse> {
    let message = admin::disable_user(&call.control, &call.caller, &user, false).await?;
    Ok(JsonResponse::ok(MessageResponse { message: Some(message) }))
}

impl Body for AdminKeyCreateRequest {}

/// Create an API key
///
/// Create another key for a user. It is shown only once.
#[utoipa::path(
    post,
    path = "/admin/key/create",
    operation_id = "admin_key_create",
    request_body = AdminKeyCreateRequest,
    responses(
        (status = 200, description = "The key was created", body = AdminKeyCreateResponse),
        (status = 400, description = "Invalid user ID format"),
        (status = 404, description = "User not found"),
    ),
)]
pub(crate) async fn create_key(call: Call<AdminKeyCreateRequest>) -> EndpointResult<AdminKeyCreateResponse> {
    let created = admin::create_key(&call.control, &call.caller, &call.body.user_id).await?;
    Ok(JsonResponse::ok(AdminKeyCreateResponse {
        key_id: created.id.into(),
        user_id: created.user.into(),
        api_key: created.api_key,
        message: created.message,
    }))
}

/// The parameters besides the page.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct UserQuery {
    /// Only keys of this user.
    user_id: Option<String>,
}

impl FromQuery for (UserQuery, PageQuery) {
    fn from_query(fields: &mut Fields) -> Self {
        (UserQuery { user_id: fields.text("user_id") }, PageQuery::from_query(fields))
    }
}

/// List API keys
///
/// The keys of all users or of one, newest first, without their secrets.
#[utoipa::path(
    get,
    path = "/admin/key/list",
    operation_id = "admin_key_list",
    params(UserQuery, PageQuery),
    responses(
        (status = 200, description = "The keys", body = AdminKeyListResponse),
        (status = 400, description = "Invalid user ID format or cursor"),
    ),
)]
pub(crate) async fn list_keys(
    call: ReadCall,
    Params((chosen, page)): Params<(UserQuery, PageQuery)>,
) -> EndpointResult<AdminKeyListResponse> {
    let page =
        admin::list_keys(&call.control, &call.caller, chosen.user_id.as_deref(), page.limit, page.cursor).await?;
    let mut message = if page.items.is_empty() { "No API keys.".to_owned() } else { api_key_table(&page.items) };
    append_next_page(&mut message, page.next_cursor.as_deref());
    let keys = page.items.into_iter().map(api_key_info).collect();
    Ok(JsonResponse::ok(AdminKeyListResponse { keys, next_cursor: page.next_cursor, message }))
}

fn api_key_table(keys: &[ApiKey]) -> String {
    let mut table = Table::new(["ID", "USER", "CREATED", "LAST USED", "REVOKED"], keys.len());
    for key in keys {
        table.row([&key.id, &key.user, &key.created, &Dash(key.last_used), &Dash(key.revoked)]);
    }
    table.render()
}

fn api_key_info(key: ApiKey) -> AdminKeyInfo {
    AdminKeyInfo {
        key_id: key.id.into(),
        user_id: key.user.into(),
        created_at: key.created.to_string(),
        revoked_at: key.revoked.map(|time| time.to_string()),
        last_used_at: key.last_used.map(|time| time.to_string()),
    }
}

/// Revoke an API key
///
/// End a key at once.
#[utoipa::path(
    delete,
    path = "/admin/key/revoke/{key_id}",
    operation_id = "admin_key_revoke",
    params(("key_id" = String, Path)),
    responses(
        (status = 200, description = "The key no longer works", body = MessageResponse),
        (status = 400, description = "Invalid key ID format"),
        (status = 404, description = "Key not found"),
        (status = 409, description = "Callers cannot revoke the key that they use"),
    ),
)]
pub(crate) async fn revoke_key(call: ChangeCall, Id(key): Id) -> EndpointResult<MessageResponse> {
    let message = admin::revoke_key(&call.control, &call.caller, &key).await?;
    Ok(JsonResponse::ok(MessageResponse { message: Some(message) }))
}

impl Body for AdminGrantRequest {}

/// Grant balance
///
/// Add balance to an organization, or to a user without one. A negative amount takes balance back.
#[utoipa::path(
    post,
    path = "/admin/grant",
    operation_id = "admin_grant",
    request_body = AdminGrantRequest,
    responses(
        (status = 200, description = "The balance after the grant", body = AdminGrantResponse),
        (status = 400, description = "Invalid ID format, amount or description"),
        (status = 404, description = "User or organization not found"),
    ),
)]
pub(crate) async fn grant_balance(call: Call<AdminGrantRequest>) -> EndpointResult<AdminGrantResponse> {
    let AdminGrantRequest { to, amount, description } = call.body;
    let amount =
        Money::from_dollars(amount).ok_or_else(|| Failure::invalid("invalid_amount", "the amount is out of range"))?;
    let granted = admin::grant(&call.control, &call.caller, &to, amount, description).await?;
    Ok(JsonResponse::ok(AdminGrantResponse {
        account: granted.account,
        balance: granted.balance.as_dollars(),
        message: granted.message,
    }))
}

/// The parameters of the event list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventsQuery {
    /// Only events with a higher number.
    #[param(required = false, default = 0, minimum = 0)]
    after: i64,
    /// Maximum number of events.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
}

impl FromQuery for EventsQuery {
    fn from_query(fields: &mut Fields) -> Self {
        let limit = fields.number("limit", 1..=i64::from(MAX_LIMIT));
        EventsQuery {
            after: fields.number("after", 0..=i64::MAX).unwrap_or(0),
            limit: limit.and_then(|limit| u32::try_from(limit).ok()),
        }
    }
}

/// List events
///
/// The event log, oldest first: the actor, the verb and the object of every change.
#[utoipa::path(
    get,
    path = "/admin/event/list",
    operation_id = "admin_event_list",
    params(EventsQuery),
    responses((status = 200, description = "The events", body = EventListResponse)),
)]
pub(crate) async fn list_events(
    call: ReadCall,
    Params(EventsQuery { after, limit }): Params<EventsQuery>,
) -> EndpointResult<EventListResponse> {
    let events = admin::events(&call.control, &call.caller, after, limit).await?;
    let message = if events.is_empty() { "No further events.".to_owned() } else { event_table(&events) };
    let next_after = events.last().map_or(after, |event| event.number);
    Ok(JsonResponse::ok(EventListResponse {
        events: events.into_iter().map(event_info).collect(),
        next_after,
        message,
    }))
}

fn event_table(events: &[Recorded]) -> String {
    let mut table = Table::new(["NUMBER", "AT", "ACTOR", "KEY", "ADDRESS", "VERB", "OBJECT", "DETAIL"], events.len());
    for event in events {
        let (key, address) = (Dash(event.origin.key.as_ref()), Dash(event.origin.address));
        table.row([&event.number, &event.at, &event.actor, &key, &address, &event.verb, &event.object, &event.detail]);
    }
    table.render()
}

fn event_info(event: Recorded) -> EventInfo {
    let Recorded { number, at, actor, object, verb, detail, origin, .. } = event;
    EventInfo {
        number,
        at: at.to_string(),
        actor,
        object,
        verb,
        detail,
        key_id: origin.key,
        address: origin.address.map(|address| address.to_string()),
        call_id: origin.call,
    }
}
