//! Addresses: the prefix of an installation with its slots, which prefix is free on this host, and subnets as people
//! write them.

pub(super) mod free_prefix;
pub(super) mod prefix;
pub(super) mod subnet;
