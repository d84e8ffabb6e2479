//! Operations on objects and uploads, without any protocol: put, copy, find, read, list, delete and multipart upload.
//!
//! Each file adds methods to [`Objects`](crate::Objects). Start reading at [`put`].

pub(crate) mod body;

pub mod complete;
pub mod copy;
pub mod delete;
pub mod find;
pub mod list;
pub mod list_versions;
pub mod put;
pub mod uploads;
