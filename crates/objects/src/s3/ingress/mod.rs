//! What a call passes before it reaches its operation: guards in front of s3s, signatures, access keys and permits.
//!
//! Start reading at [`front`], the HTTP service; [`access`] decides which organization calls.

pub(in crate::s3) mod access;
pub(in crate::s3) mod browsers;
pub(in crate::s3) mod call_permits;
pub(in crate::s3) mod chunks;
pub(in crate::s3) mod domains;
pub(in crate::s3) mod drain;
pub(in crate::s3) mod front;
pub(in crate::s3) mod open_calls;
pub(in crate::s3) mod responses;
pub(in crate::s3) mod signing;
