//! The ports of a bridge, one for each node. A bridge normally learns from every frame which address is behind which
//! port, even from frames that it handles itself before any rule applies (LLDP, 802.1X): with one such frame a node
//! would receive the traffic of another, and with many it would fill the host's memory. So learning is off, and all
//! entries are configured: hardware addresses follow from addresses. Frames to unknown addresses are dropped.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use rtnetlink::LinkBridgePort;
use rtnetlink::packet_route::neighbour::{NeighbourFlags, NeighbourState};

use super::netlink::{Netlink, netlink_error};
use crate::Error;
use crate::local::network::identity::{Identity, hardware_address};

const CONFIGURE_PORT: &str = "configure a port of the bridge";

/// Configures the bridge so that only the node with this address is behind this port.
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
