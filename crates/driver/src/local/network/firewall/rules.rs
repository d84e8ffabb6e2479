//! The rules for packets between clusters, the host and other networks, and those for senders within a bridge.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::Ipv4Addr;

use super::nftables::{self, Family};
use crate::Error;
use crate::local::network::addresses::prefix::{Prefix, SLOTS};
use crate::local::network::identity::{Identity, hardware_address};
use crate::local::network::policy::{Destination, Policy};

/// The set that counts the outgoing flows of each node.
pub(super) const FLOWS: &str = "flows";

/// How many outgoing flows one node may have at a time. The kernel tracks all flows of the host in one table, usually
/// of 262,144 entries; when it is full, nothing on the host can open a connection.
const MOST_FLOWS: u32 = 16_384;

/// The metadata services of clouds, which hold secrets of the host: link-local addresses, and those of clouds that use
/// other ones.
const METADATA: &str = "169.254.0.0/16, 100.100.100.200, 192.0.0.192";

/// Another metadata service, which also is the name server in its cloud.
const METADATA_WITH_NAMES: &str = "168.63.129.16";

/// Private networks, and those of carriers, which operators use in the same way. Instances have no IPv6.
const PRIVATE: &str = "10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10";

/// A ruleset that only kernels accept which can count flows.
pub(super) const FLOW_COUNT_PROBE: &str = "table inet tarn_probe {
  set flows {
    type ipv4_addr
    size 16
    flags dynamic
  }
  chain probe {
    ct state new add @flows { ip saddr ct count over 1 } drop
  }
}
";

/// Returns the body of the table. `is_limited` tells whether flows are counted, which not every kernel supports.
///
/// * `untracked` keeps traffic between nodes out of the shared connection tracking table: no rule needs its state.
///   Gateways are excluded, because replies to the host must be recognised.
/// * `incoming` drops packets whose source the kernel would not route to the bridge they came from: a node cannot spoof
///   an address of another cluster or network.
/// * `input` protects the host: instances may only send replies to what the host itself asked.
/// * `forward` isolates clusters from each other, from metadata services and from networks that the operator denies,
///   lets instances out, and lets only replies in. Where the kernel passes bridged packets through here as well,
///   packets within one bridge must be accepted: hence the set.
/// * `private` decides about packets to private networks. What it lets pass returns to `forward` and is counted there.
/// * `outgoing` gives packets that leave the host its address.
pub(super) fn packet_rules(
    identity: &Identity,
    prefix: Prefix,
    (policy, name_servers): (&Policy, &[Ipv4Addr]),
    is_limited: bool,
) -> String {
    let ours = format!("\"{}*\"", identity.interfaces());
    let mut same_bridge = String::new();
    for slot in 0..SLOTS {
        let bridge = identity.bridge(slot);
        write!(same_bridge, "\"{bridge}\" . \"{bridge}\", ").expect("writing to a string does not fail");
    }
    let denied: String = policy.denied.iter().map(|network| format!(", {network}")).collect();
    let (private, to_private) =
        if policy.closes_private { private_networks(&ours, &policy.allowed, name_servers) } else { Default::default() };
    let (flows, limit) = if is_limited { flow_limit(&ours) } else { Default::default() };
    format!(
        "  set same_bridge {{
    type ifname . ifname
    elements = {{ {same_bridge} }}
  }}
  set denied {{
    type ipv4_addr
    flags interval
    auto-merge
    elements = {{ {METADATA}{denied} }}
  }}
{flows}  chain untracked {{
    type filter hook prerouting priority raw; policy accept;
    iifname {ours} ip saddr {prefix} ip daddr {prefix} ip daddr & 0.0.0.63 != 0.0.0.1 notrack
  }}
  chain incoming {{
    type filter hook prerouting priority filter; policy accept;
    iifname {ours} fib saddr . iif oif missing drop
  }}
  chain input {{
    type filter hook input priority filter; policy accept;
    iifname {ours} ct state established,related ct original ip daddr {prefix} accept
    iifname {ours} drop
  }}
{private}  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname . oifname @same_bridge accept
    iifname {ours} oifname {ours} drop
    iifname {ours} meta nfproto != ipv4 drop
    iifname {ours} ip daddr @denied drop
    iifname {ours} ip daddr {METADATA_WITH_NAMES} th dport != 53 drop
{to_private}{limit}    oifname {ours} ct state established,related accept
    oifname {ours} drop
  }}
  chain outgoing {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {prefix} oifname != \"lo\" oifname != {ours} masquerade
  }}
"
    )
}

/// Returns the chain for packets to private networks, and the rule that leads to it.
fn private_networks(ours: &str, allowed: &[Destination], name_servers: &[Ipv4Addr]) -> (String, String) {
    let mut chain = "  chain private {\n".to_owned();
    let names = name_servers.iter().map(|server| (server.to_string(), Some(53)));
    let allowed = allowed.iter().map(|open| (open.network.to_string(), open.port));
    for (network, port) in names.chain(allowed) {
        let port = port.map_or_else(String::new, |port| format!("meta l4proto {{ tcp, udp }} th dport {port} "));
        writeln!(chain, "    ip daddr {network} {port}return").expect("writing to a string does not fail");
    }
    chain.push_str("    drop\n  }\n");
    (chain, format!("    iifname {ours} ip daddr {{ {PRIVATE} }} jump private\n"))
}

/// Returns the set of counted nodes, and the rule that limits their flows.
fn flow_limit(ours: &str) -> (String, String) {
    let set = format!("  set {FLOWS} {{\n    type ipv4_addr\n    size 65536\n    flags dynamic\n  }}\n");
    (set, format!("    iifname {ours} ct state new add @{FLOWS} {{ ip saddr ct count over {MOST_FLOWS} }} drop\n"))
}

/// The set of the nodes. It is updated as nodes come and go, and filled completely whenever the rules are loaded.
const SET: &str = "nodes";

/// The size of an interface name in the kernel, with its terminator.
const NAME: usize = 16;

/// Returns the body of the table for frames: one passes only if it comes from the port of the node whose hardware
/// address and IP address it carries, also within ARP requests and replies. Everything else is dropped: other
/// protocols, VLANs, router advertisements.
pub(super) fn sender_rules(identity: &Identity, nodes: &BTreeSet<Ipv4Addr>) -> String {
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
