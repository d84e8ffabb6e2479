//! Operations of multipart uploads: one file per S3 operation.
//!
//! Start reading at [`create_multipart_upload`]; [`complete_multipart_upload`] turns the parts into an object.

pub(in crate::s3) mod abort_multipart_upload;
pub(in crate::s3) mod complete_multipart_upload;
pub(in crate::s3) mod create_multipart_upload;
pub(in crate::s3) mod list_multipart_uploads;
pub(in crate::s3) mod list_parts;
pub(in crate::s3) mod upload_part;
pub(in crate::s3) mod upload_part_copy;
