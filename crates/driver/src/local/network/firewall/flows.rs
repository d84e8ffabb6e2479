//! Removes the tracked flows of a node that is removed: they would stay for days, and count against the next node with
//! its address.

use std::net::Ipv4Addr;

use super::nftables::{self, Family};
use super::packet_rules::FLOWS;
use crate::Error;
use crate::local::network::identity::Identity;

/// Removes the flows of an address that is no longer in use.
pub(in crate::local::network) fn forget_node_flows(identity: &Identity, address: Ipv4Addr) -> Result<(), Error> {
    if let Err(error) = nftables::forget_flows(address) {
        // Kernels before 6.11 can remove single flows only; there they expire.
        tracing::debug!(%address, %error, "the flows of a removed node stay in the kernel's table");
    }
    nftables::change_set(Family::Inet, (&identity.table(), FLOWS), &address.octets(), false).map(drop)
}
