//! Who may send under which address: in a bridge, a frame passes only if it comes through the cable of the node whose hardware
//! address and address it carries, also inside of the questions and answers about addresses (ARP). Everything that is neither
//! passes nowhere: other protocols, other networks on the same cable (VLAN), announcements of routers.
//!
//! A set of the kernel holds the nodes. It is filled as nodes come and go, and as a whole whenever the rules are loaded.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::nftables::{self, Family};
use crate::Error;
use crate::local::network::identity::{Identity, hardware_address};

const SET: &str = "nodes";

/// The longest name of an interface, with its end.
const NAME: usize = 16;

/// What is inside of the table.
pub(in crate::local::network) fn rules(identity: &Identity, nodes: &BTreeSet<Ipv4Addr>) -> String {
    let cables = format!("\"{}_*\"", identity.interfaces());
    let members: Vec<_> = nodes.iter().map(|address| member(identity, *address)).collect();
    let members = match members.is_empty() {
        true => String::new(),
        false => format!("    elements = {{ {} }}\n", members.join(", ")),
    };
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

/// Lets a node send. Where the rules are not loaded there is nothing to do: they are loaded with all nodes.
pub(in crate::local::network) fn admit(identity: &Identity, address: Ipv4Addr) -> Result<(), Error> {
    change(identity, address, true)
}

/// Lets a node send no more.
pub(in crate::local::network) fn dismiss(identity: &Identity, address: Ipv4Addr) -> Result<(), Error> {
    change(identity, address, false)
}

fn change(identity: &Identity, address: Ipv4Addr, is_member: bool) -> Result<(), Error> {
    nftables::change_set(Family::Bridge, (&identity.table(), SET), &key(identity, address), is_member).map(drop)
}

/// A member of the set as the kernel has it: every part begins at a whole word.
fn key(identity: &Identity, address: Ipv4Addr) -> Vec<u8> {
    let mut key = identity.veth(address).into_bytes();
    key.resize(NAME, 0);
    key.extend(hardware_address(address));
    key.resize(key.len().next_multiple_of(4), 0);
    key.extend(address.octets());
    key
}

/// A member of the set as texts have it.
fn member(identity: &Identity, address: Ipv4Addr) -> String {
    let bytes: Vec<_> = hardware_address(address).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{}\" . {} . {address}", identity.veth(address), bytes.join(":"))
}
