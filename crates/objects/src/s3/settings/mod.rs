//! Operations on the settings of buckets: tags, rules for browsers, and rules for the life of objects.

pub(in crate::s3) mod bucket_cors;
pub(in crate::s3) mod bucket_lifecycle;
pub(in crate::s3) mod bucket_tagging;
