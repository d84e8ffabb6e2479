//! The endpoints of the tag `object-storage`. They manage it; objects are read and written through the S3 endpoint.
//! Those of S3 keys are in [`keys`].

pub(crate) mod keys;

use axum::http::StatusCode;
use tarn_api::health::MessageResponse;
use tarn_api::object_storage::{
    AwsConfigure, BucketCreateResponse, BucketListResponse, ObjectStorageCredentials, ObjectStorageUsage,
    RcloneConfigure,
};
use tarn_control::operations::object_storage::{self, ObjectStorageAccess, UsageView, keys as s3_keys};
use utoipa::IntoParams;

use crate::http::input::call::{ChangeCall, ReadCall};
use crate::http::input::id::Id;
use crate::http::input::query::{Fields, FromQuery, Params};
use crate::http::output::failure::Failure;
use crate::http::output::response::{EndpointResult, JsonResponse};
use crate::http::output::table::{Cell, render_block};

/// The region that clients should configure; any region is accepted.
const REGION: &str = "global";

/// The name of the sections in the configuration files of other programs.
const SECTION: &str = "tp";

/// Enable object storage
///
/// Enable S3-compatible object storage for the organization of the caller, and return a key of the caller. If it is
/// enabled already, the key stays unchanged.
#[utoipa::path(
    post,
    path = "/object-storage/enable",
    operation_id = "object_storage_enable",
    responses(
        (status = 200, description = "Object storage is enabled", body = ObjectStorageCredentials),
        (status = 409, description = "It was disabled and its objects are still being deleted"),
    ),
)]
pub(crate) async fn enable_object_storage(call: ChangeCall) -> EndpointResult<ObjectStorageCredentials> {
    Ok(JsonResponse::ok(credentials_info(object_storage::enable(&call.control, &call.caller).await?)))
}

/// Whether objects may be deleted.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DisableQuery {
    /// Disable even if buckets hold objects: all of them are deleted.
    #[param(required = false, default = false)]
    force: bool,
}

impl FromQuery for DisableQuery {
    fn from_query(fields: &mut Fields) -> Self {
        DisableQuery { force: fields.flag("force") }
    }
}

/// Disable object storage
///
/// Disable object storage for the organization of the caller. Its keys stop working. Refused while buckets hold
/// objects, unless force is set; the objects are then deleted in the background.
#[utoipa::path(
    delete,
    path = "/object-storage/disable",
    operation_id = "object_storage_disable",
    params(DisableQuery),
    responses(
        (status = 200, description = "Object storage was disabled", body = MessageResponse),
        (status = 404, description = "Object storage is not enabled"),
        (status = 409, description = "Buckets hold objects"),
    ),
)]
pub(crate) async fn disable_object_storage(
    call: ChangeCall,
    Params(query): Params<DisableQuery>,
) -> EndpointResult<MessageResponse> {
    let message = object_storage::disable(&call.control, &call.caller, query.force).await?;
    Ok(JsonResponse::ok(MessageResponse { message: Some(message) }))
}

/// Get the credentials of object storage
///
/// The caller's own key, and where to use it. A caller who has none gets one.
#[utoipa::path(
    get,
    path = "/object-storage/credentials",
    operation_id = "object_storage_credentials",
    responses(
        (status = 200, description = "The credentials", body = ObjectStorageCredentials),
        (status = 404, description = "Object storage is not enabled"),
    ),
)]
pub(crate) async fn get_credentials(call: ReadCall) -> EndpointResult<ObjectStorageCredentials> {
    Ok(JsonResponse::ok(credentials_info(s3_keys::credentials(&call.control, &call.caller).await?)))
}

/// Get the configuration of the AWS tools
///
/// Sections for the files of the AWS command line and the AWS libraries: with them, `aws --profile tp s3 ls` needs no
/// other option.
#[utoipa::path(
    get,
    path = "/object-storage/configure/aws",
    operation_id = "object_storage_configure_aws",
    responses(
        (status = 200, description = "The sections", body = AwsConfigure),
        (status = 404, description = "Object storage is not enabled"),
    ),
)]
pub(crate) async fn configure_aws(call: ReadCall) -> EndpointResult<AwsConfigure> {
    Ok(JsonResponse::ok(aws_sections(s3_keys::credentials(&call.control, &call.caller).await?)))
}

/// Buckets are addressed by path, because not every endpoint has a domain with names for buckets.
fn aws_sections(access: ObjectStorageAccess) -> AwsConfigure {
    let ObjectStorageAccess { credentials, endpoint, .. } = access;
    let (key, secret) = (credentials.access_key_id, credentials.secret_access_key);
    AwsConfigure {
        profile_name: SECTION.to_owned(),
        credentials_file: format!("[{SECTION}]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n"),
        config_file: format!(
            "[profile {SECTION}]\nregion = {REGION}\nendpoint_url = {endpoint}\ns3 =\n    addressing_style = path\n"
        ),
        message: format!(
            "Put credentials_file into ~/.aws/credentials and config_file into ~/.aws/config; then: aws --profile {SECTION} s3 ls"
        ),
        endpoint,
    }
}

/// Get the configuration of rclone
///
/// A section for rclone.conf: with it, `rclone lsd tp:` needs no other option.
#[utoipa::path(
    get,
    path = "/object-storage/configure/rclone",
    operation_id = "object_storage_configure_rclone",
    responses(
        (status = 200, description = "The section", body = RcloneConfigure),
        (status = 404, description = "Object storage is not enabled"),
    ),
)]
pub(crate) async fn configure_rclone(call: ReadCall) -> EndpointResult<RcloneConfigure> {
    Ok(JsonResponse::ok(rclone_section(s3_keys::credentials(&call.control, &call.caller).await?)))
}

/// For an unknown provider, rclone assumes little. The last lines state what it can rely on: the newer listing, names
/// that are escaped in it, and ETags by which uploads in parts can be verified.
fn rclone_section(access: ObjectStorageAccess) -> RcloneConfigure {
    let ObjectStorageAccess { credentials, endpoint, .. } = access;
    let (key, secret) = (credentials.access_key_id, credentials.secret_access_key);
    let lines = [
        format!("[{SECTION}]"),
        "type = s3".to_owned(),
        "provider = Other".to_owned(),
        "env_auth = false".to_owned(),
        format!("access_key_id = {key}"),
        format!("secret_access_key = {secret}"),
        format!("endpoint = {endpoint}"),
        format!("region = {REGION}"),
        "force_path_style = true".to_owned(),
        "list_version = 2".to_owned(),
        "list_url_encode = true".to_owned(),
        "use_multipart_etag = true".to_owned(),
    ];
    RcloneConfigure {
        remote_name: SECTION.to_owned(),
        rclone_config: lines.join("\n") + "\n",
        message: format!("Put rclone_config into ~/.config/rclone/rclone.conf; then: rclone lsd {SECTION}:"),
    }
}

/// Get the usage of object storage
///
/// The size of the objects of the caller's organization, its quota, and the number of S3 requests.
#[utoipa::path(
    get,
    path = "/object-storage/usage",
    operation_id = "object_storage_usage",
    responses((status = 200, description = "The usage", body = ObjectStorageUsage)),
)]
pub(crate) async fn get_usage(call: ReadCall) -> EndpointResult<ObjectStorageUsage> {
    let view = object_storage::usage(&call.control, &call.caller).await?;
    let message = usage_text(&view);
    let UsageView { enabled, bytes, objects, requests, buckets, quota_bytes } = view;
    Ok(JsonResponse::ok(ObjectStorageUsage { enabled, bytes, objects, requests, buckets, quota_bytes, message }))
}

fn usage_text(view: &UsageView) -> String {
    let quota = view.quota_bytes.map_or("none".to_owned(), |bytes| bytes.to_string());
    render_block(&[
        ("Enabled", Cell::Text(if view.enabled { "yes" } else { "no" })),
        ("Bytes", Cell::Shown(&view.bytes)),
        ("Quota", Cell::Text(&quota)),
        ("Objects", Cell::Shown(&view.objects)),
        ("Buckets", Cell::Shown(&view.buckets)),
        ("Requests", Cell::Shown(&view.requests)),
    ])
}

/// List buckets
///
/// The names of the buckets of the caller's organization.
#[utoipa::path(
    get,
    path = "/object-storage/bucket/list",
    operation_id = "object_storage_bucket_list",
    responses(
        (status = 200, description = "The buckets", body = BucketListResponse),
        (status = 404, description = "Object storage is not enabled"),
    ),
)]
pub(crate) async fn list_buckets(call: ReadCall) -> EndpointResult<BucketListResponse> {
    let buckets = object_storage::list_buckets(&call.control, &call.caller).await?;
    let message = match buckets.as_slice() {
        [] => "No buckets. Create one with `tp object-storage bucket create NAME`.".to_owned(),
        names => names.join("\n"),
    };
    Ok(JsonResponse::ok(BucketListResponse { buckets, message }))
}

/// Create a bucket
///
/// Create a bucket in the caller's organization. Other organizations may have one of the same name.
#[utoipa::path(
    put,
    path = "/object-storage/bucket/create/{bucket_name}",
    operation_id = "object_storage_bucket_create",
    params(("bucket_name" = String, Path)),
    responses(
        (status = 201, description = "The bucket was created", body = BucketCreateResponse),
        (status = 400, description = "Invalid bucket name"),
        (status = 404, description = "Object storage is not enabled"),
        (status = 409, description = "Bucket exists, or too many buckets"),
        (status = 422, description = "Validation Error"),
    ),
)]
pub(crate) async fn create_bucket(call: ChangeCall, Id(bucket_name): Id) -> EndpointResult<BucketCreateResponse> {
    let message = object_storage::create_bucket(&call.control, &call.caller, &bucket_name).await?;
    Ok(JsonResponse::created(BucketCreateResponse { bucket_name, message }))
}

/// Delete a bucket
///
/// Remove an empty bucket of the caller's organization. Its unfinished uploads are aborted.
#[utoipa::path(
    delete,
    path = "/object-storage/bucket/delete/{bucket_name}",
    operation_id = "object_storage_bucket_delete",
    params(("bucket_name" = String, Path)),
    responses(
        (status = 204, description = "The bucket was deleted"),
        (status = 404, description = "Bucket not found, or object storage not enabled"),
        (status = 409, description = "The bucket is not empty"),
        (status = 422, description = "Validation Error"),
    ),
)]
pub(crate) async fn delete_bucket(call: ChangeCall, Id(bucket_name): Id) -> Result<StatusCode, Failure> {
    object_storage::delete_bucket(&call.control, &call.caller, &bucket_name).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn credentials_info(access: ObjectStorageAccess) -> ObjectStorageCredentials {
    let ObjectStorageAccess { credentials, endpoint, message } = access;
    ObjectStorageCredentials {
        access_key_id: credentials.access_key_id,
        secret_access_key: credentials.secret_access_key,
        endpoint,
        region: REGION.to_owned(),
        message: Some(message).filter(|message| !message.is_empty()),
    }
}
