//! The firewall of an installation: tables of its own beside whatever the host has, each loaded in one piece. What one says of
//! packets between networks is in `packets`; what the other says of frames in a bridge, in `addresses`.
//!
//! The rules name interfaces by what their names start with, so clusters come and go without a change here. A drop in this
//! table is final; an accept only means that this table has no objection, so the host's own firewall keeps its say.

pub(super) mod flows;
mod nftables;
mod packet_rules;
pub(super) mod sender_rules;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use self::nftables::Family;
use super::addresses::prefix::Prefix;
use super::addresses::subnet::Subnet;
use super::identity::Identity;
use crate::Error;
use crate::local::protections::{Protection, Protections};

const FAMILIES: [Family; 2] = [Family::Inet, Family::Bridge];

/// What decides about the rules, besides the prefix and the nodes.
#[derive(Debug, Default)]
pub(super) struct Firewall {
    pub(super) protections: Protections,
    /// What instances may not reach.
    pub(super) denied: Vec<Subnet>,
    /// Whether this kernel was seen not to count flows.
    unlimited: AtomicBool,
}

impl Firewall {
    /// Loads the rules unless exactly these are there. `nodes` are all that may be on the cables now.
    pub(super) async fn ensure(
        &self,
        identity: &Identity,
        prefix: Prefix,
        nodes: &BTreeSet<Ipv4Addr>,
    ) -> Result<(), Error> {
        if self.protections.have(Protection::Firewall) {
            self.ensure_packets(identity, prefix).await?;
        }
        if self.protections.have(Protection::Addresses) {
            let (rules, lasting) =
                (sender_rules::rules(identity, nodes), sender_rules::rules(identity, &BTreeSet::new()));
            load(identity, Family::Bridge, &rules, &lasting).await?;
        }
        Ok(())
    }

    /// A kernel that cannot count flows gets the rules without that one: clusters without it are better than none.
    async fn ensure_packets(&self, identity: &Identity, prefix: Prefix) -> Result<(), Error> {
        let rules = |is_limited| packet_rules::rules(identity, prefix, &self.denied, is_limited);
        let mut why = None;
        if !self.unlimited.load(Ordering::Relaxed) {
            let limited = rules(true);
            match load(identity, Family::Inet, &limited, &limited).await {
                // Only the kernel's own word is taken for it: a load that fails once may succeed the next time.
                Err(error) if nftables::takes(packet_rules::COUNTED).await? => return Err(error),
                Err(error) => why = Some(error),
                loaded => return loaded,
            }
        }
        let unlimited = rules(false);
        let loaded = load(identity, Family::Inet, &unlimited, &unlimited).await;
        match (loaded, why) {
            (Ok(()), Some(error)) => {
                self.unlimited.store(true, Ordering::Relaxed);
                tracing::warn!(
                    %error,
                    "the firewall takes no limit of flows: an instance can fill the machine's table of connections; a kernel \
                     with CONFIG_NFT_CONNLIMIT has it"
                );
                Ok(())
            }
            // What is wrong with both is told of the one that was wanted.
            (Err(_), Some(error)) => Err(error),
            (loaded, None) => loaded,
        }
    }
}

/// Loads a table unless it is there. The name of an empty chain says which rules a table holds: `lasting` is what of them does
/// not change as nodes come and go. The rules are counted as well, because a table that somebody flushed keeps its chains.
async fn load(identity: &Identity, family: Family, rules: &str, lasting: &str) -> Result<(), Error> {
    let marker = format!("rules_{}", &blake3::hash(lasting.as_bytes()).to_hex()[..16]);
    let (table, name) = (identity.table(), family.name());
    if nftables::has_chain(family, &table, &marker)? && nftables::count_rules(family, &table)? == count(lasting) {
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

/// How many rules a text holds: the lines in its chains but the one that says where a chain is hooked in.
fn count(rules: &str) -> usize {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_counts_no_flows_gets_the_same_rules_but_one() {
        let identity = Identity::new("aaaaaa").unwrap();
        let prefix = Prefix::of(Ipv4Addr::new(10, 70, 0, 0));
        let [limited, unlimited] = [true, false].map(|limited| packet_rules::rules(&identity, prefix, &[], limited));
        assert!(limited.contains("ct count over 16384") && !unlimited.contains("ct count"));
        assert_eq!(count(&limited), count(&unlimited) + 1);
        assert!(!unlimited.contains(packet_rules::FLOWS));
    }
}
