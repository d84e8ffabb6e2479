//! The veth pair that connects an instance: one end in the bridge of its cluster, the other inside as `eth0`.

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rtnetlink::packet_route::link::{InfoData, InfoKind, InfoVeth, LinkMessage};
use rtnetlink::{LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::bridge;
use super::netlink::{Link, Netlink, io_failure, netlink_error};
use crate::Error;
use crate::local::network::addresses::prefix::{Prefix, SLOT_LENGTH};
use crate::local::network::identity::{Identity, hardware_address};
use crate::local::network::kernel_settings;

const NAME_INSIDE: &str = "eth0";
/// How long the kernel may take to get interfaces ready, and how often that is checked.
const READY_TIMEOUT: Duration = Duration::from_secs(5);
const READY_POLL_INTERVAL: Duration = Duration::from_millis(1);
const CONNECT: &str = "connect the instance";

pub(in crate::local::network) async fn attach_veth(
    identity: &Identity,
    prefix: Prefix,
    (slot, address): (u16, Ipv4Addr),
    pid: u32,
    is_guarded: bool,
) -> Result<(), Error> {
    prefix.check_node_address(slot, address)?;
    let namespace = Namespace::of_process(pid)?;
    let host = Netlink::open()?;
    let inside = namespace.open_netlink_inside().await?;
    let bridge = bridge::find_bridge(&host, identity, slot).await?;
    let name = identity.veth(address);
    let there = host.find_own_link(identity, &name, InfoKind::Veth).await?;
    let theirs = inside.find_link(NAME_INSIDE).await?;
    let connected = matches!((&there, &theirs), (Some(host), Some(inside))
        if inside.other_side == Some(host.index) && host.other_side == Some(inside.index) && host.bridge == Some(bridge.index));
    if !connected {
        if there.is_some() {
            host.remove_own_link(identity, &name, InfoKind::Veth).await?;
        }
        let pair = veth_pair_message(identity, &bridge, address, &namespace);
        host.handle.link().add(pair).execute().await.map_err(|error| netlink_error(CONNECT, error))?;
    }
    let done = async {
        kernel_settings::disable_ipv6(&name)?;
        if is_guarded {
            let port = host.find_link(&name).await?.ok_or_else(link_gone)?;
            bridge::guard_port(&host, port.index, address).await?;
        }
        let up = LinkUnspec::new_with_name(&name).up().build();
        host.handle.link().change(up).execute().await.map_err(|error| netlink_error(CONNECT, error))?;
        configure_inside(&inside, address, prefix.gateway(slot)?).await?;
        wait_until_ready(&host, &[&name, &identity.bridge(slot)]).await
    };
    let done = done.await;
    if done.is_err() {
        host.remove_own_link(identity, &name, InfoKind::Veth).await?;
    }
    done
}

pub(in crate::local::network) async fn detach_veth(identity: &Identity, address: Ipv4Addr) -> Result<(), Error> {
    Netlink::open()?.remove_own_link(identity, &identity.veth(address), InfoKind::Veth).await
}

/// One message creates both ends, attaches one to the bridge, and puts the other into the namespace.
fn veth_pair_message(identity: &Identity, bridge: &Link, address: Ipv4Addr, namespace: &Namespace) -> LinkMessage {
    let inside = LinkUnspec::new_with_name(NAME_INSIDE)
        .address(hardware_address(address))
        .setns_by_fd(namespace.raw_descriptor())
        .build();
    LinkMessageBuilder::<LinkVeth>::new(&identity.veth(address), NAME_INSIDE)
        .set_info_data(InfoData::Veth(InfoVeth::Peer(inside)))
        .link_group(identity.group())
        .controller(bridge.index)
        .build()
}

/// Gives the inner end its address and routes. Everything replaces existing settings, so that it may be repeated.
async fn configure_inside(inside: &Netlink, address: Ipv4Addr, gateway: Ipv4Addr) -> Result<(), Error> {
    let up = |index| inside.handle.link().change(LinkUnspec::new_with_index(index).up().build()).execute();
    let loopback = inside.find_link("lo").await?.ok_or_else(link_gone)?;
    let ethernet = inside.find_link(NAME_INSIDE).await?.ok_or_else(link_gone)?;
    let add = inside.handle.address().add(ethernet.index, address.into(), SLOT_LENGTH).replace();
    let route = RouteMessageBuilder::<Ipv4Addr>::new().gateway(gateway).output_interface(ethernet.index).build();
    let steps = async {
        up(loopback.index).await?;
        up(ethernet.index).await?;
        add.execute().await?;
        inside.handle.route().add(route).replace().execute().await
    };
    steps.await.map_err(|error| netlink_error(CONNECT, error))
}

/// Waits until the host's ends carry packets, which usually is immediate. A packet sent too early is lost, and ARP
/// requests are repeated only after a second.
async fn wait_until_ready(host: &Netlink, names: &[&str]) -> Result<(), Error> {
    let wait = async {
        for name in names {
            while !host.find_link(name).await?.ok_or_else(link_gone)?.ready {
                tokio::time::sleep(READY_POLL_INTERVAL).await;
            }
        }
        Ok(())
    };
    match tokio::time::timeout(READY_TIMEOUT, wait).await {
        Ok(result) => result,
        Err(_) => Err(Error::Retry(format!("cannot {CONNECT}: its interface does not become ready"))),
    }
}

fn link_gone() -> Error {
    Error::Retry(format!("cannot {CONNECT}: its interface is gone"))
}

/// The network namespace of a process, held open so that it stays the same even if the process ends.
#[derive(Debug)]
pub(super) struct Namespace(File);

impl Namespace {
    /// Opens the namespace of a process. The host's own is refused: an `eth0` created there would be the host's.
    pub(super) fn of_process(pid: u32) -> Result<Namespace, Error> {
        let what = "reach the network of the instance";
        let file = File::open(format!("/proc/{pid}/ns/net")).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::Retry(format!("cannot {what}: its process is gone")),
            _ => io_failure(what, &error),
        })?;
        let theirs = file.metadata().map_err(|error| io_failure(what, &error))?;
        let ours = fs::metadata("/proc/thread-self/ns/net").map_err(|error| io_failure(what, &error))?;
        if (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino()) {
            Err(Error::Permanent("the instance has no network of its own".to_owned()))
        } else {
            Ok(Namespace(file))
        }
    }

    /// The descriptor that identifies the namespace in netlink messages.
    pub(super) fn raw_descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Opens a netlink socket in this namespace. The thread that enters the namespace is created for this and ends at
    /// once: a thread of the runtime would carry the namespace into other work.
    pub(super) async fn open_netlink_inside(&self) -> Result<Netlink, Error> {
        let what = "enter the network of the instance";
        let file = self.0.try_clone().map_err(|error| io_failure(what, &error))?;
        let runtime = Handle::current();
        let (sender, receiver) = oneshot::channel();
        let work = move || {
            let _context = runtime.enter();
            let result = move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(io::Error::from)
                .and_then(|()| kernel_settings::disable_ipv6_for_new_links())
                .map_err(|error| io_failure(what, &error))
                .and_then(|()| Netlink::open());
            // If the caller gave up, the socket is closed here.
            let _ = sender.send(result);
        };
        std::thread::Builder::new()
            .name("tarn-namespace".to_owned())
            .spawn(work)
            .map_err(|error| io_failure(what, &error))?;
        receiver.await.map_err(|_| Error::Retry(format!("cannot {what}: its thread ended")))?
    }
}
