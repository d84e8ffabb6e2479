//! GET /object-storage/configure/aws

use axum::extract::State;
use tarn_api::object_storage::AwsConfigure;
use tarn_control::operations::object_storage::{self, ObjectStorageAccess};

use super::{REGION, SECTION};
use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;

/// Get the configuration of the AWS tools
///
/// Sections for the files of the AWS command line and the AWS libraries: with them, `aws --profile tp s3 ls` needs no other
/// option.
#[utoipa::path(
    get,
    path = "/object-storage/configure/aws",
    operation_id = "object_storage_configure_aws",
    tag = "object-storage",
    responses(
        (status = 200, description = "The sections", body = AwsConfigure),
        (status = 403, description = "The caller is in no organization"),
        (status = 404, description = "Object storage is not enabled"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn configure_aws(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
) -> Outcome<AwsConfigure> {
    Ok(Answer::ok(sections(object_storage::credentials(&app.control, &caller).await?)))
}

/// Buckets go into the path, because not every endpoint has a domain below which they could have names.
fn sections(opened: ObjectStorageAccess) -> AwsConfigure {
    let ObjectStorageAccess { credentials, endpoint, .. } = opened;
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
