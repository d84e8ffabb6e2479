//! The kernel's table of flows, as far as a node that goes away leaves something there: its connections would stay for days, and
//! count for whoever gets its address next.

use std::net::Ipv4Addr;

use super::nftables::{self, Family};
use super::packet_rules::FLOWS;
use crate::Error;
use crate::local::network::identity::Identity;

/// Forgets the flows of an address that nobody has any more.
pub(in crate::local::network) fn forget(identity: &Identity, address: Ipv4Addr) -> Result<(), Error> {
    if let Err(error) = nftables::forget_flows(address) {
        // Kernels before 6.11 forget single flows only; there they run out by themselves.
        tracing::debug!(%address, %error, "the flows of a node that is gone stay in the kernel's table");
    }
    nftables::change_set(Family::Inet, (&identity.table(), FLOWS), &address.octets(), false).map(drop)
}
