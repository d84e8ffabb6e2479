//! GET /object-storage/configure/rclone

use axum::extract::State;
use tarn_api::object_storage::RcloneConfigure;
use tarn_control::operations::object_storage::{self, ObjectStorageAccess};

use super::{REGION, SECTION};
use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;

/// Get the configuration of rclone
///
/// A section for rclone.conf: with it, `rclone lsd tp:` needs no other option.
#[utoipa::path(
    get,
    path = "/object-storage/configure/rclone",
    operation_id = "object_storage_configure_rclone",
    tag = "object-storage",
    responses(
        (status = 200, description = "The section", body = RcloneConfigure),
        (status = 403, description = "The caller is in no organization"),
        (status = 404, description = "Object storage is not enabled"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn configure_rclone(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
) -> Outcome<RcloneConfigure> {
    Ok(Answer::ok(section(object_storage::credentials(&app.control, &caller).await?)))
}

/// Of an unknown provider rclone expects little. The last lines say what it may rely on here: the newer listing, names that
/// are escaped in it, and ETags by which uploads in parts can be verified.
fn section(opened: ObjectStorageAccess) -> RcloneConfigure {
    let ObjectStorageAccess { credentials, endpoint, .. } = opened;
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
