//! Operations on single objects: one file per S3 operation.
//!
//! Start reading at [`put_object`] and [`get_object`].

pub(in crate::s3) mod copy_object;
pub(in crate::s3) mod delete_object;
pub(in crate::s3) mod delete_objects;
pub(in crate::s3) mod get_object;
pub(in crate::s3) mod get_object_attributes;
pub(in crate::s3) mod head_object;
pub(in crate::s3) mod post_object;
pub(in crate::s3) mod put_object;
