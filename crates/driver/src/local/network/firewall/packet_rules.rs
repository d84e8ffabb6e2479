//! What may go between clusters, the machine and the world.

use std::fmt::Write;

use crate::local::network::addresses::prefix::{Prefix, SLOTS};
use crate::local::network::addresses::subnet::Subnet;
use crate::local::network::identity::Identity;

/// The set of those who have flows to the world.
pub(super) const FLOWS: &str = "flows";

/// How many flows to the world one node may have at a time. The kernel keeps all flows of the machine in one table, usually of
/// 262,144, and with a full one nobody opens a connection.
const MOST_FLOWS: u32 = 16_384;

/// Where clouds tell a machine its secrets: what is link-local, and those that chose an address elsewhere.
const METADATA: &str = "169.254.0.0/16, 100.100.100.200, 192.0.0.192";

/// One more of them, which also is the name server of all machines there.
const METADATA_WITH_NAMES: &str = "168.63.129.16";

/// A text that only those take who can count flows.
pub(super) const COUNTED: &str = "table inet tarn_probe {
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

/// What is inside of the table. `is_limited` says that flows are counted, which not every kernel can.
///
/// * `untracked` keeps what goes from node to node out of the kernel's table of flows, which all share: nothing here asks
///   for its state. The gateways are left out, because the answers to what the host asked must be known as such.
/// * `incoming` drops packets whose source is not one that the kernel would reach through the bridge they came from: a node
///   cannot pretend to be in another cluster, or anywhere else.
/// * `input` closes the host: instances get only the answers to what the host itself asked of them.
/// * `forward` keeps clusters apart from each other, from metadata services and from what the operator denies, lets instances
///   out, and lets in answers only. Where the kernel sends bridged packets through here as well, packets within one bridge
///   must pass: hence the set.
/// * `outgoing` gives packets that leave the machine its address.
pub(in crate::local::network) fn rules(
    identity: &Identity,
    prefix: Prefix,
    denied: &[Subnet],
    is_limited: bool,
) -> String {
    let ours = format!("\"{}*\"", identity.interfaces());
    let mut same_bridge = String::new();
    for slot in 0..SLOTS {
        let bridge = identity.bridge(slot);
        write!(same_bridge, "\"{bridge}\" . \"{bridge}\", ").expect("writing to a string does not fail");
    }
    let denied: String = denied.iter().map(|network| format!(", {network}")).collect();
    let (flows, limit) = if is_limited { limit(&ours) } else { Default::default() };
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
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname . oifname @same_bridge accept
    iifname {ours} oifname {ours} drop
    iifname {ours} meta nfproto != ipv4 drop
    iifname {ours} ip daddr @denied drop
    iifname {ours} ip daddr {METADATA_WITH_NAMES} th dport != 53 drop
{limit}    oifname {ours} ct state established,related accept
    oifname {ours} drop
  }}
  chain outgoing {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {prefix} oifname != \"lo\" oifname != {ours} masquerade
  }}
"
    )
}

/// The set of those who have flows, and the rule that counts.
fn limit(ours: &str) -> (String, String) {
    let set = format!("  set {FLOWS} {{\n    type ipv4_addr\n    size 65536\n    flags dynamic\n  }}\n");
    (set, format!("    iifname {ours} ct state new add @{FLOWS} {{ ip saddr ct count over {MOST_FLOWS} }} drop\n"))
}
