//! The ports of a bridge, one for the cable of each node. A bridge would learn from every frame who is behind which port, also
//! from those that it handles itself before any rule sees them (LLDP, 802.1X): with one such frame a node gets what is meant
//! for another, and with many it fills the machine's memory. So the bridge learns nothing and is told everything: hardware
//! addresses follow from addresses. What is for nobody it sends to nobody.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use rtnetlink::LinkBridgePort;
use rtnetlink::packet_route::neighbour::{NeighbourFlags, NeighbourState};

use super::netlink::{Netlink, refused};
use crate::Error;
use crate::local::network::identity::{Identity, hardware_address};

const TELL: &str = "tell the bridge who is on a cable";

/// Tells the bridge that the node with this address, and nobody else, is behind this port.
pub(super) async fn guard(host: &Netlink, port: u32, address: Ipv4Addr) -> Result<(), Error> {
    let entry = host.handle.neighbours().add_bridge(port, &hardware_address(address)).replace();
    // An entry without an age, which stays at this port whatever comes through others.
    let entry = entry.state(NeighbourState::Noarp).flags(NeighbourFlags::Controller | NeighbourFlags::Sticky);
    entry.execute().await.map_err(|error| refused(TELL, error))?;
    // Last, because a port that still learns is one that is not done.
    let options = LinkBridgePort::new(port).learning(false).flood(false).build();
    host.handle.link().set_port(options).execute().await.map_err(|error| refused(TELL, error))
}

/// Guards the ports of these nodes that are not: an engine before this one may have made them, or somebody changed them.
pub(in crate::local::network) async fn ensure(identity: &Identity, nodes: &BTreeSet<Ipv4Addr>) -> Result<(), Error> {
    let host = Netlink::open()?;
    let links = host.owned_links(identity).await?;
    for address in nodes {
        let name = identity.veth(*address);
        if let Some(link) = links.iter().find(|link| link.learns && link.name == name) {
            guard(&host, link.index, *address).await?;
        }
    }
    Ok(())
}
