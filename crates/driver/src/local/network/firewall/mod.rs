//! The firewall of an installation: its own tables besides those of the host, each loaded in one transaction.
//! `rules` has the table for packets between networks, and the one for frames in a bridge.
//!
//! The rules match interfaces by name prefix, so clusters come and go without a change here. A drop in this table is
//! final; an accept only means that this table does not object, so the host's own firewall still applies.

mod nftables;
pub(super) mod rules;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use self::nftables::Family;
use super::addresses::prefix::Prefix;
use super::identity::Identity;
use super::policy::Policy;
use crate::Error;
use crate::local::host::name_servers;
use crate::local::protections::{Protection, Protections};
use rules::FLOWS;

const FAMILIES: [Family; 2] = [Family::Inet, Family::Bridge];

/// What determines the rules, besides the prefix and the nodes.
#[derive(Debug)]
pub(super) struct Firewall {
    pub(super) protections: Protections,
    /// Which other networks instances may reach.
    pub(super) policy: Policy,
    /// Finds the host's name servers, which stay reachable in private networks.
    pub(super) find_name_servers: fn() -> Vec<Ipv4Addr>,
    /// Whether this kernel has turned out not to count flows.
    unlimited: AtomicBool,
}

impl Default for Firewall {
    fn default() -> Self {
        Firewall {
            protections: Protections::default(),
            policy: Policy::default(),
            find_name_servers: name_servers::find_name_servers,
            unlimited: AtomicBool::default(),
        }
    }
}

impl Firewall {
    /// Loads the rules unless exactly these are loaded. `nodes` are all nodes that may send.
    pub(super) async fn ensure_loaded(
        &self,
        identity: &Identity,
        prefix: Prefix,
        nodes: &BTreeSet<Ipv4Addr>,
    ) -> Result<(), Error> {
        if self.protections.have(Protection::Firewall) {
            self.ensure_packet_rules(identity, prefix).await?;
        }
        if self.protections.have(Protection::Addresses) {
            let (rules, lasting) =
                (rules::sender_rules(identity, nodes), rules::sender_rules(identity, &BTreeSet::new()));
            load_table(identity, Family::Bridge, &rules, &lasting).await?;
        }
        Ok(())
    }

    /// A kernel that cannot count flows gets the rules without that limit: clusters without it are better than none.
    async fn ensure_packet_rules(&self, identity: &Identity, prefix: Prefix) -> Result<(), Error> {
        // The name servers may change at any time, and the rules with them.
        let servers = if self.policy.closes_private { (self.find_name_servers)() } else { Vec::new() };
        let rules = |is_limited| rules::packet_rules(identity, prefix, (&self.policy, &servers), is_limited);
        let mut why = None;
        if !self.unlimited.load(Ordering::Relaxed) {
            let limited = rules(true);
            match load_table(identity, Family::Inet, &limited, &limited).await {
                // Only a probe decides this: a load that fails once may succeed the next time.
                Err(error) if nftables::accepts_ruleset(rules::FLOW_COUNT_PROBE).await? => return Err(error),
                Err(error) => why = Some(error),
                loaded => return loaded,
            }
        }
        let unlimited = rules(false);
        let loaded = load_table(identity, Family::Inet, &unlimited, &unlimited).await;
        match (loaded, why) {
            (Ok(()), Some(error)) => {
                self.unlimited.store(true, Ordering::Relaxed);
                tracing::warn!(
                    %error,
                    "the firewall cannot limit flows: an instance can fill the host's connection tracking table; a kernel \
                     with CONFIG_NFT_CONNLIMIT supports it"
                );
                Ok(())
            }
            // When both fail, the error of the preferred rules is returned.
            (Err(_), Some(error)) => Err(error),
            (loaded, None) => loaded,
        }
    }
}

/// Loads a table unless it is loaded. The name of an empty chain identifies the rules: it is derived from `lasting`,
/// the part that does not change as nodes come and go. The rules are counted as well, because a flushed table keeps its
/// chains.
async fn load_table(identity: &Identity, family: Family, rules: &str, lasting: &str) -> Result<(), Error> {
    let marker = format!("rules_{}", &blake3::hash(lasting.as_bytes()).to_hex()[..16]);
    let (table, name) = (identity.table(), family.name());
    if nftables::has_chain(family, &table, &marker)?
        && nftables::count_rules(family, &table)? == count_rule_lines(lasting)
    {
        return Ok(());
    }
    // The whole text is one transaction, so there is no moment without rules when old ones are replaced.
    let replace =
        if nftables::has_table(family, &table)? { format!("delete table {name} {table}\n") } else { String::new() };
    let text =
        format!("{replace}create table {name} {table}\ntable {name} {table} {{\n  chain {marker} {{ }}\n{rules}}}\n");
    nftables::load_ruleset(&text).await
}

/// Removes the rules, and verifies that they are gone.
pub(super) async fn remove_firewall(identity: &Identity) -> Result<(), Error> {
    let table = identity.table();
    for family in FAMILIES {
        if nftables::has_table(family, &table)? {
            nftables::load_ruleset(&format!("delete table {} {table}\n", family.name())).await?;
        }
    }
    if firewall_exists(identity)? {
        Err(Error::Retry("the firewall of the installation still exists".to_owned()))
    } else {
        Ok(())
    }
}

pub(super) fn firewall_exists(identity: &Identity) -> Result<bool, Error> {
    for family in FAMILIES {
        if nftables::has_table(family, &identity.table())? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Counts the rules of a text: the lines in its chains except those that declare the hook.
fn count_rule_lines(rules: &str) -> usize {
    let mut in_chain = false;
    let is_rule = |line: &&str| {
        match line.trim_start() {
            line if line.starts_with("chain ") => in_chain = true,
            "}" => in_chain = false,
            line => return in_chain && !line.starts_with("type "),
        }
        false
    };
    rules.lines().filter(is_rule).count()
}

/// Removes the tracked flows of a node that is removed: they would stay for days, and count against the next node with
/// its address.
pub(in crate::local::network) fn forget_node_flows(identity: &Identity, address: Ipv4Addr) -> Result<(), Error> {
    if let Err(error) = nftables::forget_flows(address) {
        // Kernels before 6.11 can remove single flows only; there they expire.
        tracing::debug!(%address, %error, "the flows of a removed node stay in the kernel's table");
    }
    nftables::change_set(Family::Inet, (&identity.table(), FLOWS), &address.octets(), false).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlimited_rules_lack_only_the_flow_limit() {
        let identity = Identity::new("aaaaaa").unwrap();
        let prefix = Prefix::of(Ipv4Addr::new(10, 70, 0, 0));
        let [limited, unlimited] =
            [true, false].map(|limited| rules::packet_rules(&identity, prefix, (&Policy::default(), &[]), limited));
        assert!(limited.contains("ct count over 16384") && !unlimited.contains("ct count"));
        assert_eq!(count_rule_lines(&limited), count_rule_lines(&unlimited) + 1);
        assert!(!unlimited.contains(rules::FLOWS));
    }
}
