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

/// An S3 key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct S3KeyInfo {
    /// The id of the access key, by which it can be revoked.
    pub access_key_id: String,
    /// The name of the key.
    pub name: String,
    /// ID of the user whom it belongs to; null for a legacy key.
    pub user_id: Option<String>,
    /// E-mail address of that user.
    pub email: Option<String>,
    /// `active`; `ending` after a rotation that keeps it for a while; `suspended` while its user is disabled or not in
    /// the organization; `ended`.
    pub status: String,
    /// Whether it is the key that all members of the organization shared before keys belonged to users.
    pub legacy: bool,
    /// When it was created.
    pub created_at: String,
    /// When it was last used, with a lag of up to 10 seconds; null if it was never used.
    pub last_used_at: Option<String>,
    /// When it stops or stopped working; null if that is not known.
    pub ends_at: Option<String>,
}

/// Response for GET /object-storage/keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct S3KeyListResponse {
    /// The keys, newest first. A legacy key is the first one.
    pub keys: Vec<S3KeyInfo>,
    /// Pass this as `cursor` to get the next page; null at the end.
    pub next_cursor: Option<String>,
    /// The list as a table.
    pub message: String,
}

/// Request body for POST /object-storage/keys/create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct S3KeyCreateRequest {
    /// A name for the key; it is generated when absent.
    #[schema(max_length = 100)]
    pub name: Option<String>,
}

/// Response for POST /object-storage/keys/create.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct S3KeyCreateResponse {
    /// The id of the access key.
    pub access_key_id: String,
    /// Its secret.
    pub secret_access_key: String,
    /// The name of the key.
    pub name: String,
    /// The URL of the S3 endpoint.
    pub endpoint: String,
    /// The region to configure in clients; any region is accepted.
    pub region: String,
    /// Status message
    pub message: String,
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
