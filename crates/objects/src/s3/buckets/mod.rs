//! Operations on buckets: one file per S3 operation.

pub(in crate::s3) mod create_bucket;
pub(in crate::s3) mod delete_bucket;
pub(in crate::s3) mod get_bucket_location;
pub(in crate::s3) mod get_bucket_versioning;
pub(in crate::s3) mod head_bucket;
pub(in crate::s3) mod list_buckets;
pub(in crate::s3) mod put_bucket_versioning;
