//! Free prefixes: those in which no other program on this host has an address or a route.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use futures::{TryStreamExt, future};
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute};

use super::prefix::Prefix;
use crate::Error;
use crate::local::network::identity::Identity;
use crate::local::network::links::netlink::{Netlink, netlink_error};

/// A network in use: an address and its prefix length.
pub(super) type UsedNetwork = (Ipv4Addr, u8);

/// Chooses a free prefix: `favourite` if it is free, or the first in the installation's own order.
pub(in crate::local::network) async fn choose_free_prefix(
    identity: &Identity,
    favourite: Option<Prefix>,
) -> Result<Prefix, Error> {
    let used = used_networks(identity).await?;
    let is_free = |prefix: &Prefix| !used.iter().any(|(address, length)| prefix.overlaps(*address, *length));
    favourite.into_iter().chain(Prefix::candidate_prefixes(identity.number())).find(is_free).ok_or_else(|| {
        Error::Permanent("no free network: routes of this host cover all private address ranges".to_owned())
    })
}

/// Returns the networks that other programs on this host use.
pub(in crate::local::network) async fn used_networks(identity: &Identity) -> Result<Vec<UsedNetwork>, Error> {
    let netlink = Netlink::open()?;
    let ours = netlink.own_link_names(identity).await?;
    let mut used = foreign_addresses(&netlink, identity).await?;
    used.extend(foreign_routes(&netlink, &ours).await?);
    Ok(used)
}

/// Refuses a prefix in which another program has an address. Checked right after a bridge got its address: of two
/// engines that chose the same prefix at the same moment, at least the later one sees the other.
pub(in crate::local::network) async fn check_prefix_unused(
    netlink: &Netlink,
    identity: &Identity,
    prefix: Prefix,
) -> Result<(), Error> {
    let foreign = foreign_addresses(netlink, identity).await?;
    if foreign.iter().any(|(address, length)| prefix.overlaps(*address, *length)) {
        Err(Error::Retry(format!("another interface of this host uses addresses of {prefix}")))
    } else {
        Ok(())
    }
}

/// Returns the addresses of others. An address carries the name of its interface; a separate list of interfaces would
/// be unreliable, because this installation creates and removes interfaces all the time.
async fn foreign_addresses(netlink: &Netlink, identity: &Identity) -> Result<Vec<UsedNetwork>, Error> {
    let ours = identity.interfaces();
    let found = netlink.handle.address().get().execute().try_filter_map(|message| {
        let mut foreign = true;
        let mut address = None;
        for attribute in &message.attributes {
            match attribute {
                AddressAttribute::Label(label) => foreign = !label.starts_with(&ours),
                AddressAttribute::Address(IpAddr::V4(found)) => address = Some((*found, message.header.prefix_len)),
                _ => {}
            }
        }
        future::ok(address.filter(|_| foreign))
    });
    found.try_collect().await.map_err(|error| netlink_error("list the addresses", error))
}

/// The default route covers everything and tells nothing about what is used, so it is left out.
async fn foreign_routes(netlink: &Netlink, ours: &BTreeMap<u32, String>) -> Result<Vec<UsedNetwork>, Error> {
    let all = netlink.handle.route().get(RouteMessageBuilder::<Ipv4Addr>::new().build());
    let found = all.execute().try_filter_map(|message| {
        let length = message.header.destination_prefix_length;
        let mut foreign = true;
        let mut destination = None;
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Oif(index) => foreign = !ours.contains_key(index),
                RouteAttribute::Destination(RouteAddress::Inet(address)) => destination = Some((*address, length)),
                _ => {}
            }
        }
        future::ok(destination.filter(|_| foreign && length > 0))
    });
    found.try_collect().await.map_err(|error| netlink_error("list the routes", error))
}
