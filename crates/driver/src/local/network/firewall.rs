//! The firewall of an installation: tables of its own beside whatever the host has, each loaded in one piece. One is here, about
//! packets between networks; the other is in `addresses`, about frames in a bridge.
//!
//! The rules name interfaces by what their names start with, so clusters come and go without a change here. A drop in this
//! table is final; an accept only means that this table has no objection, so the host's own firewall keeps its say.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::Ipv4Addr;

use super::addresses;
use super::identity::Identity;
use super::nftables::{self, Family};
use super::prefix::{Prefix, SLOTS};
use crate::Error;
use crate::local::protections::{Protection, Protections};

const FAMILIES: [Family; 2] = [Family::Inet, Family::Bridge];

/// Loads the rules unless exactly these are there. `nodes` are all that may be on the cables now.
pub(super) async fn ensure(
    identity: &Identity,
    prefix: Prefix,
    nodes: &BTreeSet<Ipv4Addr>,
    protections: &Protections,
) -> Result<(), Error> {
    if protections.have(Protection::Firewall) {
        let rules = rules(identity, prefix);
        load(identity, Family::Inet, &rules, &rules).await?;
    }
    if protections.have(Protection::Addresses) {
        let (rules, lasting) = (addresses::rules(identity, nodes), addresses::rules(identity, &BTreeSet::new()));
        load(identity, Family::Bridge, &rules, &lasting).await?;
    }
    Ok(())
}

/// Loads a table unless it is there. The name of an empty chain says which rules a table holds: `lasting` is what of them does
/// not change as nodes come and go.
async fn load(identity: &Identity, family: Family, rules: &str, lasting: &str) -> Result<(), Error> {
    let marker = format!("rules_{}", &blake3::hash(lasting.as_bytes()).to_hex()[..16]);
    let (table, name) = (identity.table(), family.name());
    if nftables::has_chain(family, &table, &marker)? {
        return Ok(());
    }
    // All of a text is one transaction, so that there is no moment without rules when old ones are replaced.
    let replace = match nftables::has_table(family, &table)? {
        true => format!("delete table {name} {table}\n"),
        false => String::new(),
    };
    let text =
        format!("{replace}create table {name} {table}\ntable {name} {table} {{\n  chain {marker} {{ }}\n{rules}}}\n");
    nftables::load(&text).await
}

/// Removes the rules, and returns when they are seen to be gone.
pub(super) async fn remove(identity: &Identity) -> Result<(), Error> {
    let table = identity.table();
    for family in FAMILIES {
        if nftables::has_table(family, &table)? {
            nftables::load(&format!("delete table {} {table}\n", family.name())).await?;
        }
    }
    match exists(identity)? {
        true => Err(Error::Retry("the firewall of the installation is still there".to_owned())),
        false => Ok(()),
    }
}

pub(super) fn exists(identity: &Identity) -> Result<bool, Error> {
    for family in FAMILIES {
        if nftables::has_table(family, &identity.table())? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What is inside of the table.
///
/// * `incoming` drops packets whose source is not one that the kernel would reach through the bridge they came from: a node
///   cannot pretend to be in another cluster, or anywhere else.
/// * `input` closes the host: instances get only the answers to what the host itself asked of them.
/// * `forward` keeps clusters apart from each other and from metadata services, lets instances out, and lets in answers only.
///   Where the kernel sends bridged packets through here as well, packets within one bridge must pass: hence the set.
/// * `outgoing` gives packets that leave the machine its address.
fn rules(identity: &Identity, prefix: Prefix) -> String {
    let ours = format!("\"{}*\"", identity.interfaces());
    let mut same_bridge = String::new();
    for slot in 0..SLOTS {
        let bridge = identity.bridge(slot);
        write!(same_bridge, "\"{bridge}\" . \"{bridge}\", ").expect("writing to a string does not fail");
    }
    format!(
        "  set same_bridge {{
    type ifname . ifname
    elements = {{ {same_bridge} }}
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
    iifname {ours} ip daddr 169.254.0.0/16 drop
    oifname {ours} ct state established,related accept
    oifname {ours} drop
  }}
  chain outgoing {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {prefix} oifname != \"lo\" oifname != {ours} masquerade
  }}
"
    )
}
