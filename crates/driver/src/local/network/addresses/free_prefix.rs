//! Which prefix is free: no address and no route of anybody else on this machine is in it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use futures::{TryStreamExt, future};
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute};

use super::prefix::Prefix;
use crate::Error;
use crate::local::network::identity::Identity;
use crate::local::network::links::netlink::{Netlink, refused};

/// A network that somebody uses: an address and the length of its prefix.
pub(super) type Used = (Ipv4Addr, u8);

/// Chooses a prefix that is free of others: `favourite` if it still is, or the first of the installation's own order.
pub(in crate::local::network) async fn choose(identity: &Identity, favourite: Option<Prefix>) -> Result<Prefix, Error> {
    let used = used(identity).await?;
    let is_free = |prefix: &Prefix| !used.iter().any(|(address, length)| prefix.overlaps(*address, *length));
    favourite.into_iter().chain(Prefix::candidates(identity.number())).find(is_free).ok_or_else(|| {
        Error::Permanent("no free network: routes of this machine cover all private address ranges".to_owned())
    })
}

/// What others on this machine use.
pub(in crate::local::network) async fn used(identity: &Identity) -> Result<Vec<Used>, Error> {
    let netlink = Netlink::open()?;
    let ours = netlink.owned(identity).await?;
    let mut used = addresses(&netlink, identity).await?;
    used.extend(routes(&netlink, &ours).await?);
    Ok(used)
}

/// Refuses a prefix in which somebody else has an address. Asked right after a bridge got its own: of two engines that chose
/// the same prefix at the same moment, at least the later one sees the other.
pub(in crate::local::network) async fn check(
    netlink: &Netlink,
    identity: &Identity,
    prefix: Prefix,
) -> Result<(), Error> {
    match addresses(netlink, identity).await?.iter().any(|(address, length)| prefix.overlaps(*address, *length)) {
        true => Err(Error::Retry(format!("another interface of this machine uses addresses of {prefix}"))),
        false => Ok(()),
    }
}

/// The addresses of others. An address carries the name of its interface, which a list of interfaces could not tell for sure:
/// this installation makes and removes some all the time.
async fn addresses(netlink: &Netlink, identity: &Identity) -> Result<Vec<Used>, Error> {
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
    found.try_collect().await.map_err(|error| refused("list the addresses", error))
}

/// The default route leads everywhere and says nothing about what is used, so it is left out.
async fn routes(netlink: &Netlink, ours: &BTreeMap<u32, String>) -> Result<Vec<Used>, Error> {
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
    found.try_collect().await.map_err(|error| refused("list the routes", error))
}
