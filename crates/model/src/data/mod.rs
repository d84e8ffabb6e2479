//! What outlives clusters: volumes, buckets and objects.

pub mod buckets;
pub mod objects;
pub mod storage;
