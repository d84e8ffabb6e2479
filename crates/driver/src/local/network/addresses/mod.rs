//! Addresses: the prefix of an installation with its slots, and which prefix is free on this host.

pub(super) mod free_prefix;
pub(super) mod prefix;
