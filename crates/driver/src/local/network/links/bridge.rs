//! The bridge of a cluster: it connects the nodes, each with a port of its own, and is their gateway.

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;

use rtnetlink::packet_route::link::{BridgeStpState, InfoKind};
use rtnetlink::packet_route::neighbour::{NeighbourFlags, NeighbourState};
use rtnetlink::{LinkBridge, LinkBridgePort, LinkMessageBuilder, LinkUnspec};

use super::netlink::{Link, Netlink, is_error_kind, netlink_error};
use crate::Error;
use crate::local::network::addresses::free_prefix;
use crate::local::network::addresses::prefix::{Prefix, SLOT_LENGTH};
use crate::local::network::identity::{Identity, hardware_address};
use crate::local::network::kernel_settings;

const MAKE: &str = "create the bridge of the cluster";

/// Creates the bridge. A bridge that is up is complete, because that is the last step.
pub(in crate::local::network) async fn ensure_bridge(
    identity: &Identity,
    prefix: Prefix,
    slot: u16,
) -> Result<(), Error> {
    let gateway = prefix.gateway(slot)?;
    let name = identity.bridge(slot);
    let netlink = Netlink::open()?;
    let link = match netlink.find_own_link(identity, &name, InfoKind::Bridge).await? {
        Some(link) if link.up => return Ok(()),
        Some(link) => link,
        None => {
            // Without a fixed hardware address it would change as ports come and go.
            let bridge = LinkMessageBuilder::<LinkBridge>::new(&name)
                .address(hardware_address(gateway))
                .link_group(identity.group())
                .stp_state(BridgeStpState::Disabled)
                .forward_delay(0)
                .mcast_snooping(false);
            let made = netlink.handle.link().add(bridge.build()).execute().await;
            ignore_existing(made)?;
            find_bridge(&netlink, identity, slot).await?
        }
    };
    kernel_settings::disable_ipv6(&name)?;
    kernel_settings::restrict_arp_replies(&name)?;
    let address = netlink.handle.address().add(link.index, gateway.into(), SLOT_LENGTH);
    ignore_existing(address.execute().await)?;
    if let Err(error) = free_prefix::check_prefix_unused(&netlink, identity, prefix).await {
        netlink.remove_own_link(identity, &name, InfoKind::Bridge).await?;
        return Err(error);
    }
    let up = LinkUnspec::new_with_index(link.index).alias(identity.alias()).up().build();
    netlink.handle.link().change(up).execute().await.map_err(|error| netlink_error(MAKE, error))
}

pub(in crate::local::network) async fn remove_bridge(identity: &Identity, slot: u16) -> Result<(), Error> {
    Netlink::open()?.remove_own_link(identity, &identity.bridge(slot), InfoKind::Bridge).await
}

/// Returns the bridge of a slot, which must exist.
pub(super) async fn find_bridge(netlink: &Netlink, identity: &Identity, slot: u16) -> Result<Link, Error> {
    let link = netlink.find_own_link(identity, &identity.bridge(slot), InfoKind::Bridge).await?;
    link.ok_or_else(|| Error::Retry("the bridge of the cluster does not exist".to_owned()))
}

/// A concurrent task may have created it first.
fn ignore_existing(result: Result<(), rtnetlink::Error>) -> Result<(), Error> {
    match result {
        Err(error) if !is_error_kind(&error, io::ErrorKind::AlreadyExists) => Err(netlink_error(MAKE, error)),
        _ => Ok(()),
    }
}

const CONFIGURE_PORT: &str = "configure a port of the bridge";

/// Configures the bridge so that only the node with this address is behind this port.
///
/// A bridge normally learns from every frame which address is behind which port, even from frames that it handles
/// itself before any rule applies (LLDP, 802.1X): with one such frame a node would receive the traffic of another, and
/// with many it would fill the host's memory. So learning is off, and all entries are configured: hardware addresses
/// follow from addresses. Frames to unknown addresses are dropped.
pub(super) async fn guard_port(host: &Netlink, port: u32, address: Ipv4Addr) -> Result<(), Error> {
    let entry = host.handle.neighbours().add_bridge(port, &hardware_address(address)).replace();
    // A permanent entry, which stays at this port whatever arrives at others.
    let entry = entry.state(NeighbourState::Noarp).flags(NeighbourFlags::Controller | NeighbourFlags::Sticky);
    entry.execute().await.map_err(|error| netlink_error(CONFIGURE_PORT, error))?;
    // Last, because a port that still learns counts as incomplete.
    let options = LinkBridgePort::new(port).learning(false).flood(false).build();
    host.handle.link().set_port(options).execute().await.map_err(|error| netlink_error(CONFIGURE_PORT, error))
}

/// Guards the ports of these nodes that are not guarded: an earlier engine may have created them, or another program
/// changed them.
pub(in crate::local::network) async fn ensure_guarded_ports(
    identity: &Identity,
    nodes: &BTreeSet<Ipv4Addr>,
) -> Result<(), Error> {
    let host = Netlink::open()?;
    let links = host.own_links(identity).await?;
    for address in nodes {
        let name = identity.veth(*address);
        if let Some(link) = links.iter().find(|link| link.learns && link.name == name) {
            guard_port(&host, link.index, *address).await?;
        }
    }
    Ok(())
}
