//! The network interfaces of clusters: bridges, the veth pairs that connect instances to them, and the netlink socket
//! that creates both.
//!
//! Start reading at `bridge`, then `veth`.

pub(super) mod bridge;
pub(super) mod netlink;
pub(super) mod veth;
