//! The network of the local driver: a bridge for every cluster, a pair of virtual interfaces for every instance, and one
//! firewall for the installation.
//!
//! Each installation has 65,536 private addresses ([`Prefix`]), cut into 1,024 slots of 64. A cluster has one slot: its bridge
//! is the first address and the gateway, its nodes are the others. Nothing here is kept: the caller has slots and addresses
//! in its records and tells of them at the start, and every verb looks at the kernel first. Whatever is made carries the installation's id, and
//! what does not carry it is never touched. This module knows addresses and process ids, nothing of instances or records.
//!
//! Start reading at [`Network`]; `firewall` and `addresses` hold the rules, `veth` and `inside` the way into an instance.

mod addresses;
mod firewall;
mod identity;
mod kernel_settings;
mod links;
pub(super) mod survey;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use addresses::prefix::Prefix;
pub use addresses::subnet::Subnet;

use self::addresses::{free_prefix, prefix};
use self::firewall::Firewall;
use self::firewall::{flows, sender_rules};
use self::identity::Identity;
use self::links::netlink::Netlink;
use self::links::netlink_threads::Turns;
use self::links::{bridge, bridge_ports, veth};
use super::protections::{Protection, Protections};
use crate::Error;

/// The network of one installation. Every verb may be called again after any failure and from several tasks or processes at
/// once; only `remove_base` and `remove_bridge` must not run while an instance of theirs is being attached.
#[derive(Debug)]
pub struct Network {
    identity: Arc<Identity>,
    prefix: Mutex<Prefix>,
    turns: Turns,
    loading: tokio::sync::Mutex<()>,
    /// The nodes that may send, for when the rules have to be loaded.
    nodes: Mutex<BTreeSet<Ipv4Addr>>,
    firewall: Firewall,
}

impl Network {
    /// The network of the installation with this id: six characters of Crockford base32. `remembered` is the prefix of the
    /// addresses that were given out before ([`Prefix::of`] any of them); with none a free one is chosen.
    pub async fn open(installation: &str, remembered: Option<Prefix>) -> Result<Network, Error> {
        let identity = Arc::new(Identity::new(installation)?);
        let turns = Turns::new();
        let prefix = match remembered {
            Some(prefix) => prefix,
            None => {
                let identity = identity.clone();
                turns.take(async move || free_prefix::choose(&identity, None).await).await?
            }
        };
        let (prefix, loading) = (Mutex::new(prefix), tokio::sync::Mutex::new(()));
        Ok(Network { identity, prefix, turns, loading, nodes: Mutex::default(), firewall: Firewall::default() })
    }

    /// Tells it of the nodes that were attached before, and of what a test leaves out.
    #[must_use]
    pub fn with(mut self, nodes: BTreeSet<Ipv4Addr>, protections: Protections) -> Self {
        self.nodes = Mutex::new(nodes);
        self.firewall.protections = protections;
        self
    }

    /// Tells it of networks that instances may not reach.
    #[must_use]
    pub fn denying(mut self, denied: Vec<Subnet>) -> Self {
        self.firewall.denied = denied;
        self
    }

    /// The addresses of this installation.
    pub fn prefix(&self) -> Prefix {
        *self.lock_prefix()
    }

    /// Looks again whether the prefix is free of others, and moves to another one if not. Call it before the first address
    /// is given out, when no record holds one: another engine that had no cluster when this one was opened could not be
    /// seen then.
    pub async fn settle(&self) -> Result<Prefix, Error> {
        let (identity, favourite) = (self.identity.clone(), self.prefix());
        let prefix = self.turns.take(async move || free_prefix::choose(&identity, Some(favourite)).await).await?;
        *self.lock_prefix() = prefix;
        Ok(prefix)
    }

    /// A slot for a new cluster: the lowest that is not taken.
    pub fn choose_slot(&self, taken: &BTreeSet<u16>) -> Result<u16, Error> {
        prefix::choose_slot(taken)
    }

    /// An address for a new node in a slot: the lowest that is not taken.
    pub fn address(&self, slot: u16, taken: &BTreeSet<Ipv4Addr>) -> Result<Ipv4Addr, Error> {
        self.prefix().choose_address(slot, taken)
    }

    /// The address of a cluster's gateway, which is its bridge.
    pub fn gateway(&self, slot: u16) -> Result<Ipv4Addr, Error> {
        self.prefix().gateway(slot)
    }

    /// Loads the firewall and turns forwarding on, once for the installation; costs next to nothing when both are there, so
    /// that it may be called before every start of an instance and every few seconds: somebody may have flushed the machine's
    /// firewall.
    pub async fn ensure_base(&self) -> Result<(), Error> {
        let _one_at_a_time = self.loading.lock().await;
        if !kernel_settings::forwards()? {
            self.turns.take(async || kernel_settings::turn_forwarding_on()).await?;
        }
        let nodes = self.lock_nodes().clone();
        self.firewall.ensure(&self.identity, self.prefix(), &nodes).await
    }

    /// Looks whether everything that keeps running instances apart is as it was made, and makes it so again.
    pub async fn keep(&self) -> Result<(), Error> {
        self.ensure_base().await?;
        if !self.firewall.protections.have(Protection::Addresses) {
            return Ok(());
        }
        let (identity, nodes) = (self.identity.clone(), self.lock_nodes().clone());
        self.turns.take(async move || bridge_ports::ensure(&identity, &nodes).await).await
    }

    /// Removes the firewall. Forwarding stays on: something else may rely on it by now.
    pub async fn remove_base(&self) -> Result<(), Error> {
        let _one_at_a_time = self.loading.lock().await;
        firewall::remove(&self.identity).await
    }

    /// Makes the bridge of a cluster, with the gateway's address, up.
    pub async fn ensure_bridge(&self, slot: u16) -> Result<(), Error> {
        let (identity, prefix) = (self.identity.clone(), self.prefix());
        self.turns.take(async move || bridge::ensure(&identity, prefix, slot).await).await
    }

    /// Removes the bridge of a cluster, and returns when it is seen to be gone.
    pub async fn remove_bridge(&self, slot: u16) -> Result<(), Error> {
        let identity = self.identity.clone();
        self.turns.take(async move || bridge::remove(&identity, slot).await).await
    }

    /// Gives the network namespace of the process `pid` an interface `eth0` with the address, plugged into the bridge of the
    /// slot, and a default route. An interface that this address had elsewhere is removed first.
    pub async fn attach(&self, slot: u16, address: Ipv4Addr, pid: u32) -> Result<(), Error> {
        let (identity, prefix) = (self.identity.clone(), self.prefix());
        prefix.check(slot, address)?;
        let is_new = self.admit(address).await?;
        let is_guarded = self.firewall.protections.have(Protection::Addresses);
        let attach = async move || veth::attach(&identity, prefix, (slot, address), pid, is_guarded).await;
        let attached = self.turns.take(attach).await;
        if attached.is_err() && is_new {
            self.dismiss(address).await?;
        }
        attached
    }

    /// Removes the interface of an address, and returns when it is seen to be gone.
    pub async fn detach(&self, slot: u16, address: Ipv4Addr) -> Result<(), Error> {
        self.prefix().check(slot, address)?;
        let identity = self.identity.clone();
        self.turns.take(async move || veth::detach(&identity, address).await).await?;
        self.dismiss(address).await
    }

    /// The names of all interfaces and tables of this installation that exist.
    pub async fn leftovers(&self) -> Result<Vec<String>, Error> {
        let identity = self.identity.clone();
        let ours = self.turns.take(async move || Netlink::open()?.owned(&identity).await).await?;
        let mut names: Vec<String> = ours.into_values().collect();
        names.sort();
        if firewall::exists(&self.identity)? {
            names.push(self.identity.table());
        }
        Ok(names)
    }

    /// Removes all interfaces of this installation but those of the given slots and addresses, and says which they were. What
    /// is being made at that moment must be among the given ones: a record is written before anything is made.
    pub async fn sweep(&self, slots: &BTreeSet<u16>, addresses: &BTreeSet<Ipv4Addr>) -> Result<Vec<String>, Error> {
        let identity = self.identity.clone();
        let bridges = slots.iter().map(|slot| identity.bridge(*slot));
        let keep: BTreeSet<String> = bridges.chain(addresses.iter().map(|address| identity.veth(*address))).collect();
        let work = async move || {
            let netlink = Netlink::open()?;
            let mut removed = Vec::new();
            for (index, name) in netlink.owned(&identity).await? {
                if !keep.contains(&name) {
                    netlink.delete(index, &name).await?;
                    removed.push(name);
                }
            }
            Ok(removed)
        };
        self.turns.take(work).await
    }

    /// Lets a node send, and says whether it is new. Not while rules are being loaded, which may be without it.
    async fn admit(&self, address: Ipv4Addr) -> Result<bool, Error> {
        let _none_loads = self.loading.lock().await;
        let is_new = self.lock_nodes().insert(address);
        sender_rules::admit(&self.identity, address)?;
        Ok(is_new)
    }

    /// Lets a node send no more, and forgets what it had to do with the world.
    async fn dismiss(&self, address: Ipv4Addr) -> Result<(), Error> {
        {
            let _none_loads = self.loading.lock().await;
            self.lock_nodes().remove(&address);
            sender_rules::dismiss(&self.identity, address)?;
        }
        let identity = self.identity.clone();
        self.turns.take(async move || flows::forget(&identity, address)).await
    }

    fn lock_nodes(&self) -> MutexGuard<'_, BTreeSet<Ipv4Addr>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_prefix(&self) -> MutexGuard<'_, Prefix> {
        self.prefix.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
