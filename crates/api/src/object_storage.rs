//! The management of object storage. Objects are read and written through the S3 protocol.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Response for POST /object-storage/enable, GET /object-storage/credentials and POST /object-storage/rotate-keys.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ObjectStorageCredentials {
    /// The id of the access key.
    pub access_key_id: String,
    /// Its secret.
    pub secret_access_key: String,
    /// The URL of the S3 endpoint.
    pub endpoint: String,
    /// The region to configure in clients; any region is accepted.
    pub region: String,
    /// What happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Response for GET /object-storage/configure/aws.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AwsConfigure {
    /// The name of the profile.
    #[schema(default = "tp")]
    pub profile_name: String,
    /// The section for ~/.aws/credentials, with its header.
    pub credentials_file: String,
    /// The section for ~/.aws/config, with its header.
    pub config_file: String,
    /// The URL of the S3 endpoint, which is also in the section.
    pub endpoint: String,
    /// What to do with them.
    pub message: String,
}

/// Response for GET /object-storage/configure/rclone.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RcloneConfigure {
    /// The name of the remote.
    #[schema(default = "tp")]
    pub remote_name: String,
    /// The section for rclone.conf, with its header.
    pub rclone_config: String,
    /// What to do with it.
    pub message: String,
}

/// Response for GET /object-storage/bucket/list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BucketListResponse {
    /// The names of the buckets, in order.
    pub buckets: Vec<String>,
    /// The list as text.
    pub message: String,
}

/// Response for PUT /object-storage/bucket/create/{bucket_name}.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BucketCreateResponse {
    /// The name of the bucket.
    pub bucket_name: String,
    /// What happened.
    pub message: String,
}

/// Response for GET /object-storage/usage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ObjectStorageUsage {
    /// Whether the organization has object storage.
    pub enabled: bool,
    /// How many bytes it holds, those of old versions and open uploads included.
    pub bytes: u64,
    /// How many objects it holds, old versions included.
    pub objects: u64,
    /// How many S3 requests were made since it was enabled. It lags by up to 10 seconds.
    pub requests: u64,
    /// How many buckets there are.
    pub buckets: u64,
    /// How many bytes it may hold; null is no limit.
    pub quota_bytes: Option<u64>,
    /// The same as text.
    pub message: String,
}
