//! Volumes and object storage.

mod failures;
mod lifecycle;
mod object_storage;
mod refusals;
mod volume_users;
