//! What several operations share: the caller, headers, checksums, conditions, ranges, request bodies and errors.
//!
//! Nothing here knows a single operation.

pub(in crate::s3) mod body;
pub(in crate::s3) mod caller;
pub(in crate::s3) mod checksums;
pub(in crate::s3) mod conditions;
pub(in crate::s3) mod descriptions;
pub(in crate::s3) mod errors;
pub(in crate::s3) mod headers;
pub(in crate::s3) mod ranges;
pub(in crate::s3) mod times;
pub(in crate::s3) mod version_ids;
