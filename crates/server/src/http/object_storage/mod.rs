//! The endpoints of the tag `object-storage`, a file each. They manage it; what is in the buckets is the business of S3.

pub(crate) mod configure_aws;
pub(crate) mod configure_rclone;
pub(crate) mod create_bucket;
pub(crate) mod credentials;
pub(crate) mod delete_bucket;
pub(crate) mod disable;
pub(crate) mod enable;
pub(crate) mod list_buckets;
pub(crate) mod rotate_keys;
pub(crate) mod usage;

use tarn_api::object_storage::ObjectStorageCredentials;
use tarn_control::operations::object_storage::ObjectStorageAccess;

/// What clients are told to call the one region there is; they may call it anything.
const REGION: &str = "global";

/// What sections in the files of other programs are called.
const SECTION: &str = "tp";

fn view(opened: ObjectStorageAccess) -> ObjectStorageCredentials {
    let ObjectStorageAccess { credentials, endpoint, message } = opened;
    ObjectStorageCredentials {
        access_key_id: credentials.access_key_id,
        secret_access_key: credentials.secret_access_key,
        endpoint,
        region: REGION.to_owned(),
        message: Some(message).filter(|message| !message.is_empty()),
    }
}
