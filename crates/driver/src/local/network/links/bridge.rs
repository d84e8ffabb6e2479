//! The bridge of a cluster: what its nodes are plugged into, and their gateway.

use std::io;

use rtnetlink::packet_route::link::{BridgeStpState, InfoKind};
use rtnetlink::{LinkBridge, LinkMessageBuilder, LinkUnspec};

use super::netlink::{Link, Netlink, is, refused};
use crate::Error;
use crate::local::network::addresses::free_prefix;
use crate::local::network::addresses::prefix::{Prefix, SLOT_LENGTH};
use crate::local::network::identity::{Identity, hardware_address};
use crate::local::network::kernel_settings;

const MAKE: &str = "make the bridge of the cluster";

/// A bridge that is up is complete, because that is the last step.
pub(in crate::local::network) async fn ensure(identity: &Identity, prefix: Prefix, slot: u16) -> Result<(), Error> {
    let gateway = prefix.gateway(slot)?;
    let name = identity.bridge(slot);
    let netlink = Netlink::open()?;
    let link = match netlink.own(identity, &name, InfoKind::Bridge).await? {
        Some(link) if link.up => return Ok(()),
        Some(link) => link,
        None => {
            // Its hardware address is given, or else it would change as ports come and go.
            let bridge = LinkMessageBuilder::<LinkBridge>::new(&name)
                .address(hardware_address(gateway))
                .link_group(identity.group())
                .stp_state(BridgeStpState::Disabled)
                .forward_delay(0)
                .mcast_snooping(false);
            let made = netlink.handle.link().add(bridge.build()).execute().await;
            unless_there(made)?;
            get(&netlink, identity, slot).await?
        }
    };
    kernel_settings::no_ipv6(&name)?;
    kernel_settings::only_own_addresses(&name)?;
    let address = netlink.handle.address().add(link.index, gateway.into(), SLOT_LENGTH);
    unless_there(address.execute().await)?;
    if let Err(error) = free_prefix::check(&netlink, identity, prefix).await {
        netlink.remove(identity, &name, InfoKind::Bridge).await?;
        return Err(error);
    }
    let up = LinkUnspec::new_with_index(link.index).alias(identity.alias()).up().build();
    netlink.handle.link().change(up).execute().await.map_err(|error| refused(MAKE, error))
}

pub(in crate::local::network) async fn remove(identity: &Identity, slot: u16) -> Result<(), Error> {
    Netlink::open()?.remove(identity, &identity.bridge(slot), InfoKind::Bridge).await
}

/// The bridge of a slot, which has to be there.
pub(in crate::local::network) async fn get(netlink: &Netlink, identity: &Identity, slot: u16) -> Result<Link, Error> {
    let link = netlink.own(identity, &identity.bridge(slot), InfoKind::Bridge).await?;
    link.ok_or_else(|| Error::Retry("the bridge of the cluster is not there".to_owned()))
}

/// Another task that does the same may have been a moment faster.
fn unless_there(result: Result<(), rtnetlink::Error>) -> Result<(), Error> {
    match result {
        Err(error) if !is(&error, io::ErrorKind::AlreadyExists) => Err(refused(MAKE, error)),
        _ => Ok(()),
    }
}
