//! Volumes and object storage.

mod failures;
mod lifecycle;
mod object_storage;
mod refusals;
mod s3_keys;
mod volume_users;
