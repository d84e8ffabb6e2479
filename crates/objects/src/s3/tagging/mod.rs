//! Operations on the tags of objects: one file per S3 operation. [`tags`] parses and checks the tags themselves.

pub(in crate::s3) mod delete_object_tagging;
pub(in crate::s3) mod get_object_tagging;
pub(in crate::s3) mod put_object_tagging;
pub(in crate::s3) mod tags;
