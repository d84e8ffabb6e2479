//! Rows of object storage: accounts, access keys, buckets, objects with their versions, and uploads in parts.
//!
//! Start reading at [`objects`]: an object is one row, and its bytes are in the row or in [`parts`].

pub mod accounts;
pub mod bucket_settings;
pub mod buckets;
pub mod lifecycle_passes;
pub mod objects;
pub mod parts;
pub mod s3_keys;
pub mod uploads;
pub mod versions;
