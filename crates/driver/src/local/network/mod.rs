//! The network of the local driver: a bridge for every cluster, a veth pair for every instance, and one firewall for
//! the installation.
//!
//! Each installation has 65,536 private addresses ([`Prefix`]), divided into 1,024 slots of 64. A cluster has one slot:
//! the first address is its bridge and gateway, the others are its nodes. Nothing is stored here: the caller has slots
//! and addresses in its records and passes them at the start, and every method checks the kernel first. All objects
//! carry the installation's id, and objects without it are never touched. This module knows addresses and process ids,
//! nothing of instances or records.
//!
//! Start reading at [`Network`]; `policy` says what instances may reach, `firewall` has the rules, `links` the
//! interfaces, `addresses` the address plan.

mod addresses;
mod firewall;
mod identity;
mod kernel_settings;
mod links;
mod policy;
pub(super) mod survey;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

pub use addresses::prefix::{Prefix, Subnet};
use parking_lot::{Mutex, MutexGuard};
pub use policy::{Destination, Policy};

use self::addresses::{free_prefix, prefix};
use self::firewall::{Firewall, rules};
use self::identity::Identity;
use self::links::netlink::{Netlink, NetlinkThreads};
use self::links::{bridge, veth};
use super::protections::{Protection, Protections};
use crate::Error;

/// The network of one installation. Every method may be called again after any failure, and from several tasks or
/// processes at once; only `remove_base` and `remove_bridge` must not run while one of their instances is being
/// attached.
#[derive(Debug)]
pub struct Network {
    identity: Arc<Identity>,
    prefix: Mutex<Prefix>,
    netlink_threads: NetlinkThreads,
    loading: tokio::sync::Mutex<()>,
    /// The nodes that may send; needed whenever the rules are loaded.
    nodes: Mutex<BTreeSet<Ipv4Addr>>,
    firewall: Firewall,
}

impl Network {
    /// Opens the network of the installation with this id: six characters of Crockford base32. `remembered` is the
    /// prefix of the addresses in use ([`Prefix::of`] any of them); with `None` a free one is chosen.
    pub async fn open(installation: &str, remembered: Option<Prefix>) -> Result<Network, Error> {
        let identity = Arc::new(Identity::new(installation)?);
        let netlink_threads = NetlinkThreads::new();
        let prefix = match remembered {
            Some(prefix) => prefix,
            None => {
                let identity = identity.clone();
                netlink_threads
                    .run_on_thread(async move || free_prefix::choose_free_prefix(&identity, None).await)
                    .await?
            }
        };
        let (prefix, loading) = (Mutex::new(prefix), tokio::sync::Mutex::new(()));
        Ok(Network {
            identity,
            prefix,
            netlink_threads,
            loading,
            nodes: Mutex::default(),
            firewall: Firewall::default(),
        })
    }

    /// Sets the nodes that are already attached, and the protections that a test disables.
    #[must_use]
    pub fn with(mut self, nodes: BTreeSet<Ipv4Addr>, protections: Protections) -> Self {
        self.nodes = Mutex::new(nodes);
        self.firewall.protections = protections;
        self
    }

    /// Sets which other networks instances may reach.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.firewall.policy = policy;
        self
    }

    /// Replaces how the host's name servers are found, for tests.
    #[must_use]
    pub fn with_name_servers(mut self, find: fn() -> Vec<Ipv4Addr>) -> Self {
        self.firewall.find_name_servers = find;
        self
    }

    /// Returns the addresses of this installation.
    pub fn prefix(&self) -> Prefix {
        *self.lock_prefix()
    }

    /// Checks again whether the prefix is free, and moves to another one if not. Call it before the first address is
    /// assigned, when no record holds one: an engine without clusters was invisible when this one was opened.
    pub async fn settle(&self) -> Result<Prefix, Error> {
        let (identity, favourite) = (self.identity.clone(), self.prefix());
        let prefix = self
            .netlink_threads
            .run_on_thread(async move || free_prefix::choose_free_prefix(&identity, Some(favourite)).await)
            .await?;
        *self.lock_prefix() = prefix;
        Ok(prefix)
    }

    /// Returns a slot for a new cluster: the lowest free one.
    pub fn choose_slot(&self, taken: &BTreeSet<u16>) -> Result<u16, Error> {
        prefix::choose_slot(taken)
    }

    /// Returns an address for a new node in a slot: the lowest free one.
    pub fn address(&self, slot: u16, taken: &BTreeSet<Ipv4Addr>) -> Result<Ipv4Addr, Error> {
        self.prefix().choose_address(slot, taken)
    }

    /// Returns the address of a cluster's gateway, which is its bridge.
    pub fn gateway(&self, slot: u16) -> Result<Ipv4Addr, Error> {
        self.prefix().gateway(slot)
    }

    /// Loads the firewall and enables forwarding, once for the installation. It costs next to nothing when both are in
    /// place, so it may be called before every start of an instance and every few seconds: another program may have
    /// flushed the host's firewall.
    pub async fn ensure_base(&self) -> Result<(), Error> {
        let _one_at_a_time = self.loading.lock().await;
        if !kernel_settings::is_forwarding_enabled()? {
            self.netlink_threads.run_on_thread(async || kernel_settings::enable_forwarding()).await?;
        }
        let nodes = self.lock_nodes().clone();
        self.firewall.ensure_loaded(&self.identity, self.prefix(), &nodes).await
    }

    /// Checks and restores everything that isolates running instances.
    pub async fn restore_isolation(&self) -> Result<(), Error> {
        self.ensure_base().await?;
        if !self.firewall.protections.have(Protection::Addresses) {
            return Ok(());
        }
        let (identity, nodes) = (self.identity.clone(), self.lock_nodes().clone());
        self.netlink_threads.run_on_thread(async move || bridge::ensure_guarded_ports(&identity, &nodes).await).await
    }

    /// Removes the firewall. Forwarding stays on: other programs may rely on it.
    pub async fn remove_base(&self) -> Result<(), Error> {
        let _one_at_a_time = self.loading.lock().await;
        firewall::remove_firewall(&self.identity).await
    }

    /// Creates the bridge of a cluster, with the gateway's address, and brings it up.
    pub async fn ensure_bridge(&self, slot: u16) -> Result<(), Error> {
        let (identity, prefix) = (self.identity.clone(), self.prefix());
        self.netlink_threads.run_on_thread(async move || bridge::ensure_bridge(&identity, prefix, slot).await).await
    }

    /// Removes the bridge of a cluster, and verifies that it is gone.
    pub async fn remove_bridge(&self, slot: u16) -> Result<(), Error> {
        let identity = self.identity.clone();
        self.netlink_threads.run_on_thread(async move || bridge::remove_bridge(&identity, slot).await).await
    }

    /// Creates an interface `eth0` with the address and a default route in the network namespace of the process `pid`,
    /// attached to the bridge of the slot. An interface that this address had elsewhere is removed first.
    pub async fn attach(&self, slot: u16, address: Ipv4Addr, pid: u32) -> Result<(), Error> {
        let (identity, prefix) = (self.identity.clone(), self.prefix());
        prefix.check_node_address(slot, address)?;
        let is_new = self.admit_node(address).await?;
        let is_guarded = self.firewall.protections.have(Protection::Addresses);
        let attach = async move || veth::attach_veth(&identity, prefix, (slot, address), pid, is_guarded).await;
        let attached = self.netlink_threads.run_on_thread(attach).await;
        if attached.is_err() && is_new {
            self.dismiss_node(address).await?;
        }
        attached
    }

    /// Removes the interface of an address, and verifies that it is gone.
    pub async fn detach(&self, slot: u16, address: Ipv4Addr) -> Result<(), Error> {
        self.prefix().check_node_address(slot, address)?;
        let identity = self.identity.clone();
        self.netlink_threads.run_on_thread(async move || veth::detach_veth(&identity, address).await).await?;
        self.dismiss_node(address).await
    }

    /// Returns the names of all existing interfaces and tables of this installation.
    pub async fn leftovers(&self) -> Result<Vec<String>, Error> {
        let identity = self.identity.clone();
        let ours =
            self.netlink_threads.run_on_thread(async move || Netlink::open()?.own_link_names(&identity).await).await?;
        let mut names: Vec<String> = ours.into_values().collect();
        names.sort();
        if firewall::firewall_exists(&self.identity)? {
            names.push(self.identity.table());
        }
        Ok(names)
    }

    /// Removes all interfaces of this installation except those of the given slots and addresses, and returns their
    /// names. Interfaces that are being created must be among the given ones: a record is written before anything is
    /// created.
    pub async fn sweep(&self, slots: &BTreeSet<u16>, addresses: &BTreeSet<Ipv4Addr>) -> Result<Vec<String>, Error> {
        let identity = self.identity.clone();
        let bridges = slots.iter().map(|slot| identity.bridge(*slot));
        let keep: BTreeSet<String> = bridges.chain(addresses.iter().map(|address| identity.veth(*address))).collect();
        let work = async move || {
            let netlink = Netlink::open()?;
            let mut removed = Vec::new();
            for (index, name) in netlink.own_link_names(&identity).await? {
                if !keep.contains(&name) {
                    netlink.delete_link(index, &name).await?;
                    removed.push(name);
                }
            }
            Ok(removed)
        };
        self.netlink_threads.run_on_thread(work).await
    }

    /// Admits a node as a sender; returns whether it is new. Waits while rules are being loaded, which may lack it.
    async fn admit_node(&self, address: Ipv4Addr) -> Result<bool, Error> {
        let _none_loads = self.loading.lock().await;
        let is_new = self.lock_nodes().insert(address);
        rules::admit_sender(&self.identity, address)?;
        Ok(is_new)
    }

    /// Dismisses a node as a sender, and removes its tracked flows.
    async fn dismiss_node(&self, address: Ipv4Addr) -> Result<(), Error> {
        {
            let _none_loads = self.loading.lock().await;
            self.lock_nodes().remove(&address);
            rules::dismiss_sender(&self.identity, address)?;
        }
        let identity = self.identity.clone();
        self.netlink_threads.run_on_thread(async move || firewall::forget_node_flows(&identity, address)).await
    }

    fn lock_nodes(&self) -> MutexGuard<'_, BTreeSet<Ipv4Addr>> {
        self.nodes.lock()
    }

    fn lock_prefix(&self) -> MutexGuard<'_, Prefix> {
        self.prefix.lock()
    }
}
