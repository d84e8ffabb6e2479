//! What outlives clusters: volumes, buckets and objects, and the keys that open these.

pub mod buckets;
pub mod cors;
pub mod object_rules;
pub mod objects;
pub mod s3_keys;
pub mod storage;
