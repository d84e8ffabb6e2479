//! The rules for senders: a frame in a bridge passes only if it comes from the port of the node whose hardware address
//! and IP address it carries, also within ARP requests and replies. Everything else is dropped: other protocols, VLANs,
//! router advertisements.
//!
//! A kernel set holds the nodes. It is updated as nodes come and go, and filled completely whenever the rules are
//! loaded.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::nftables::{self, Family};
use crate::Error;
use crate::local::network::identity::{Identity, hardware_address};

const SET: &str = "nodes";

/// The size of an interface name in the kernel, with its terminator.
const NAME: usize = 16;

/// Returns the body of the table.
pub(in crate::local::network) fn sender_rules(identity: &Identity, nodes: &BTreeSet<Ipv4Addr>) -> String {
    let cables = format!("\"{}_*\"", identity.interfaces());
    let members: Vec<_> = nodes.iter().map(|address| element_text(identity, *address)).collect();
    let members =
        if members.is_empty() { String::new() } else { format!("    elements = {{ {} }}\n", members.join(", ")) };
    format!(
        "  set {SET} {{
    type ifname . ether_addr . ipv4_addr
{members}  }}
  chain incoming {{
    type filter hook prerouting priority filter; policy accept;
    iifname != {cables} accept
    ether type arp iifname . ether saddr . arp saddr ip @{SET} iifname . arp saddr ether . arp saddr ip @{SET} accept
    ether type ip iifname . ether saddr . ip saddr @{SET} udp sport 67 drop
    ether type ip iifname . ether saddr . ip saddr @{SET} accept
    drop
  }}
"
    )
}

/// Allows a node to send. Without loaded rules there is nothing to do: they are loaded with all nodes.
pub(in crate::local::network) fn admit_sender(identity: &Identity, address: Ipv4Addr) -> Result<(), Error> {
    change_sender(identity, address, true)
}

/// Revokes the permission of a node to send.
pub(in crate::local::network) fn dismiss_sender(identity: &Identity, address: Ipv4Addr) -> Result<(), Error> {
    change_sender(identity, address, false)
}

fn change_sender(identity: &Identity, address: Ipv4Addr, is_member: bool) -> Result<(), Error> {
    nftables::change_set(Family::Bridge, (&identity.table(), SET), &element_key(identity, address), is_member).map(drop)
}

/// Returns an element of the set in the kernel's binary form: every part is padded to four bytes.
fn element_key(identity: &Identity, address: Ipv4Addr) -> Vec<u8> {
    let mut key = identity.veth(address).into_bytes();
    key.resize(NAME, 0);
    key.extend(hardware_address(address));
    key.resize(key.len().next_multiple_of(4), 0);
    key.extend(address.octets());
    key
}

/// Returns an element of the set in the form of rulesets.
fn element_text(identity: &Identity, address: Ipv4Addr) -> String {
    let bytes: Vec<_> = hardware_address(address).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{}\" . {} . {address}", identity.veth(address), bytes.join(":"))
}
