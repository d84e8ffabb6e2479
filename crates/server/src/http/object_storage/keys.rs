//! The endpoints of S3 keys.

use std::time::Duration;

use tarn_api::health::MessageResponse;
use tarn_api::object_storage::{
    ObjectStorageCredentials, S3KeyCreateRequest, S3KeyCreateResponse, S3KeyInfo, S3KeyListResponse,
};
use tarn_control::operations::object_storage::keys::{self, KeyPage, LegacyKey, ListedKey};
use tarn_model::Time;
use tarn_model::s3_keys::MAX_OVERLAP;
use utoipa::IntoParams;

use super::{REGION, credentials_info};
use crate::http::input::body::Body;
use crate::http::input::call::{Call, ChangeCall, ReadCall};
use crate::http::input::id::Id;
use crate::http::input::listing::PageQuery;
use crate::http::input::query::{Fields, FromQuery, Params};
use crate::http::output::response::{EndpointResult, JsonResponse};
use crate::http::output::table::{Dash, Table, append_next_page};

/// How long the old key keeps working.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RotateQuery {
    /// For how many seconds the old key keeps working, at most a week. Refused while two keys work.
    #[param(minimum = 0, maximum = 604800, default = 0)]
    keep_old_for: Option<u64>,
}

impl FromQuery for RotateQuery {
    fn from_query(fields: &mut Fields) -> Self {
        let limit = i64::try_from(MAX_OVERLAP.as_secs()).unwrap_or(i64::MAX);
        let seconds = fields.number("keep_old_for", 0..=limit);
        RotateQuery { keep_old_for: seconds.and_then(|seconds| u64::try_from(seconds).ok()) }
    }
}

/// Replace the caller's keys of object storage
///
/// Create a new key for the caller. The caller's old keys, and URLs that were signed with them, stop working at once,
/// or after keep_old_for. Keys of other members stay unchanged.
#[utoipa::path(
    post,
    path = "/object-storage/rotate-keys",
    operation_id = "object_storage_rotate_keys",
    params(RotateQuery),
    responses(
        (status = 200, description = "The new credentials", body = ObjectStorageCredentials),
        (status = 404, description = "Object storage is not enabled"),
        (status = 409, description = "Two keys work, and none of them may be kept"),
    ),
)]
pub(crate) async fn rotate_keys(
    call: ChangeCall,
    Params(query): Params<RotateQuery>,
) -> EndpointResult<ObjectStorageCredentials> {
    let keep = query.keep_old_for.map(Duration::from_secs);
    Ok(JsonResponse::ok(credentials_info(keys::rotate(&call.control, &call.caller, keep).await?)))
}

/// The parameters besides the page.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct KeysQuery {
    /// Include keys that no longer work.
    #[param(required = false, default = false)]
    all: bool,
}

impl FromQuery for (KeysQuery, PageQuery) {
    fn from_query(fields: &mut Fields) -> Self {
        (KeysQuery { all: fields.flag("all") }, PageQuery::from_query(fields))
    }
}

/// List S3 keys
///
/// The caller's keys, newest first, without their secrets. An administrator of the organization sees the keys of all
/// members and the organization's legacy key.
#[utoipa::path(
    get,
    path = "/object-storage/keys",
    operation_id = "object_storage_keys_list",
    params(KeysQuery, PageQuery),
    responses(
        (status = 200, description = "The keys", body = S3KeyListResponse),
        (status = 400, description = "Invalid cursor"),
        (status = 404, description = "Object storage is not enabled"),
    ),
)]
pub(crate) async fn list_keys(
    call: ReadCall,
    Params((query, page)): Params<(KeysQuery, PageQuery)>,
) -> EndpointResult<S3KeyListResponse> {
    let listed = keys::list(&call.control, &call.caller, query.all, page.limit, page.cursor.as_deref()).await?;
    let KeyPage { page, legacy, now } = listed;
    let members = page.items.into_iter().map(|key| key_info(key, now));
    let keys: Vec<_> = legacy.map(legacy_key_info).into_iter().chain(members).collect();
    let mut message = match keys.as_slice() {
        [] => "No S3 keys. `tarn object-storage credentials` creates one.".to_owned(),
        keys => key_table(keys),
    };
    append_next_page(&mut message, page.next_cursor.as_deref());
    Ok(JsonResponse::ok(S3KeyListResponse { keys, next_cursor: page.next_cursor, message }))
}

fn key_table(keys: &[S3KeyInfo]) -> String {
    let mut table = Table::new(["ID", "NAME", "USER", "STATUS", "CREATED", "LAST USED", "ENDS"], keys.len());
    for key in keys {
        let user = Dash(key.email.as_deref());
        let (used, ends) = (Dash(key.last_used_at.as_deref()), Dash(key.ends_at.as_deref()));
        table.row([&key.access_key_id, &key.name, &user, &key.status, &key.created_at, &used, &ends]);
    }
    table.render()
}

fn key_info(listed: ListedKey, now: Time) -> S3KeyInfo {
    let ListedKey { key, email, suspended } = listed;
    let status = match (key.works_at(now), suspended, key.ends) {
        (false, _, _) => "ended",
        (true, true, _) => "suspended",
        (true, false, Some(_)) => "ending",
        (true, false, None) => "active",
    };
    S3KeyInfo {
        access_key_id: key.id,
        name: key.name,
        user_id: Some(key.user.into()),
        email: Some(email),
        status: status.to_owned(),
        legacy: false,
        created_at: key.created.to_string(),
        last_used_at: key.last_used.map(|time| time.to_string()),
        ends_at: key.ends.map(|time| time.to_string()),
    }
}

fn legacy_key_info(key: LegacyKey) -> S3KeyInfo {
    S3KeyInfo {
        access_key_id: key.id,
        name: "legacy".to_owned(),
        user_id: None,
        email: None,
        status: if key.ends.is_some() { "ending" } else { "active" }.to_owned(),
        legacy: true,
        created_at: key.created.to_string(),
        last_used_at: key.last_used.map(|time| time.to_string()),
        ends_at: key.ends.map(|time| time.to_string()),
    }
}

impl Body for S3KeyCreateRequest {}

/// Create an S3 key
///
/// Create another key for the caller. A user has at most two that work.
#[utoipa::path(
    post,
    path = "/object-storage/keys/create",
    operation_id = "object_storage_keys_create",
    request_body = S3KeyCreateRequest,
    responses(
        (status = 200, description = "The key was created", body = S3KeyCreateResponse),
        (status = 400, description = "Invalid name"),
        (status = 404, description = "Object storage is not enabled"),
        (status = 409, description = "Two keys work already"),
    ),
)]
pub(crate) async fn create_key(call: Call<S3KeyCreateRequest>) -> EndpointResult<S3KeyCreateResponse> {
    let (name, access) = keys::create(&call.control, &call.caller, call.body.name).await?;
    Ok(JsonResponse::ok(S3KeyCreateResponse {
        access_key_id: access.credentials.access_key_id,
        secret_access_key: access.credentials.secret_access_key,
        name,
        endpoint: access.endpoint,
        region: REGION.to_owned(),
        message: access.message,
    }))
}

/// Revoke an S3 key
///
/// End a key of the caller at once, and with it every URL that was signed with it. An administrator of the organization
/// may end the keys of other members.
#[utoipa::path(
    delete,
    path = "/object-storage/keys/revoke/{key_id}",
    operation_id = "object_storage_keys_revoke",
    params(("key_id" = String, Path)),
    responses(
        (status = 200, description = "The key no longer works", body = MessageResponse),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Key not found"),
        (status = 409, description = "It is the legacy key of the organization"),
    ),
)]
pub(crate) async fn revoke_key(call: ChangeCall, Id(key): Id) -> EndpointResult<MessageResponse> {
    let message = keys::revoke(&call.control, &call.caller, &key).await?;
    Ok(JsonResponse::ok(MessageResponse { message: Some(message) }))
}

/// Retire the legacy key
///
/// End the key that all members of the caller's organization shared before keys belonged to users. Only administrators
/// of the organization may do this.
#[utoipa::path(
    post,
    path = "/object-storage/keys/retire-legacy",
    operation_id = "object_storage_keys_retire_legacy",
    responses(
        (status = 200, description = "The legacy key no longer works", body = MessageResponse),
        (status = 403, description = "Only for administrators of the organization"),
        (status = 404, description = "The organization has no legacy key, or object storage is not enabled"),
    ),
)]
pub(crate) async fn retire_legacy_key(call: ChangeCall) -> EndpointResult<MessageResponse> {
    let message = keys::retire_legacy(&call.control, &call.caller).await?;
    Ok(JsonResponse::ok(MessageResponse { message: Some(message) }))
}
