//! The kernel's routing socket, and the queries that all methods need: whether an interface exists, and whether it is
//! ours.

use std::collections::BTreeMap;
use std::io;

use futures::TryStreamExt;
use rtnetlink::Handle;
use rtnetlink::packet_route::link::{
    InfoBridgePort, InfoKind, InfoPortData, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, State,
};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::Error;
use crate::local::network::identity::Identity;

/// An open socket. It belongs to the network namespace of the thread that opened it.
#[derive(Debug)]
pub(in crate::local::network) struct Netlink {
    pub(in crate::local::network) handle: Handle,
    reader: JoinHandle<()>,
}

/// The attributes of an interface that matter here.
#[derive(Debug)]
pub(super) struct Link {
    pub(in crate::local::network) index: u32,
    pub(in crate::local::network) up: bool,
    /// Whether it carries packets: the kernel needs a moment for that after it is up.
    pub(super) ready: bool,
    /// The index of the other end of a veth pair, in its own namespace.
    pub(super) other_side: Option<u32>,
    /// The bridge that it is attached to.
    pub(in crate::local::network) bridge: Option<u32>,
    /// Whether the bridge learns addresses from this port.
    pub(super) learns: bool,
    pub(in crate::local::network) name: String,
    kind: Option<InfoKind>,
    group: u32,
}

impl Netlink {
    /// Opens a socket in the namespace of the calling thread, which must be inside of the runtime's context.
    pub(in crate::local::network) fn open() -> Result<Netlink, Error> {
        let (connection, handle, _) =
            rtnetlink::new_connection().map_err(|error| io_failure("reach the network", &error))?;
        Ok(Netlink { handle, reader: tokio::spawn(connection) })
    }

    /// Returns the interface of that name, whatever created it.
    pub(super) async fn find_link(&self, name: &str) -> Result<Option<Link>, Error> {
        let mut answers = Box::pin(self.handle.link().get().match_name(name).execute());
        match answers.try_next().await {
            Ok(message) => Ok(message.as_ref().map(Link::from)),
            Err(error) if is_error_kind(&error, io::ErrorKind::NotFound) => Ok(None),
            Err(error) => Err(netlink_error("read an interface", error)),
        }
    }

    /// Returns the interface of that name if it is this installation's; a foreign interface is an error, and is not
    /// touched.
    pub(super) async fn find_own_link(
        &self,
        identity: &Identity,
        name: &str,
        kind: InfoKind,
    ) -> Result<Option<Link>, Error> {
        match self.find_link(name).await? {
            Some(link) if link.group != identity.group() || link.kind != Some(kind) => {
                Err(Error::Permanent(format!("there is an interface {name} on the host that Tarn did not create")))
            }
            link => Ok(link),
        }
    }

    /// Returns all interfaces of the installation: names by index.
    pub(in crate::local::network) async fn own_link_names(
        &self,
        identity: &Identity,
    ) -> Result<BTreeMap<u32, String>, Error> {
        Ok(self.own_links(identity).await?.into_iter().map(|link| (link.index, link.name)).collect())
    }

    /// Returns all interfaces of the installation.
    pub(super) async fn own_links(&self, identity: &Identity) -> Result<Vec<Link>, Error> {
        let links = self.handle.link().get().execute().map_ok(|message| Link::from(&message));
        let ours = links.try_filter(|link| {
            let ours = link.group == identity.group() && link.name.starts_with(&identity.interfaces());
            std::future::ready(ours)
        });
        ours.try_collect().await.map_err(|error| netlink_error("list the interfaces", error))
    }

    /// Removes an interface of this installation, and verifies that its name is free.
    pub(super) async fn remove_own_link(&self, identity: &Identity, name: &str, kind: InfoKind) -> Result<(), Error> {
        match self.find_own_link(identity, name, kind).await? {
            Some(link) => self.delete_link(link.index, name).await,
            None => Ok(()),
        }
    }

    /// Removes an interface that is known to be ours, and verifies that its name is free.
    pub(in crate::local::network) async fn delete_link(&self, index: u32, name: &str) -> Result<(), Error> {
        match self.handle.link().del(index).execute().await {
            Err(error) if !is_error_kind(&error, io::ErrorKind::NotFound) => {
                return Err(netlink_error("remove an interface", error));
            }
            _ => {}
        }
        match self.find_link(name).await? {
            None => Ok(()),
            Some(_) => Err(Error::Retry(format!("the interface {name} still exists"))),
        }
    }
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl From<&LinkMessage> for Link {
    fn from(message: &LinkMessage) -> Link {
        let mut link = Link {
            index: message.header.index,
            up: message.header.flags.contains(LinkFlags::Up),
            ready: false,
            other_side: None,
            bridge: None,
            learns: false,
            name: String::new(),
            kind: None,
            group: 0,
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::OperState(state) => link.ready = *state == State::Up,
                LinkAttribute::Group(group) => link.group = *group,
                LinkAttribute::Link(index) => link.other_side = Some(*index),
                LinkAttribute::Controller(index) => link.bridge = Some(*index),
                LinkAttribute::LinkInfo(infos) => {
                    link.kind = infos.iter().find_map(|info| match info {
                        LinkInfo::Kind(kind) => Some(kind.clone()),
                        _ => None,
                    });
                    link.learns = infos.iter().any(|info| {
                        matches!(info, LinkInfo::PortData(InfoPortData::BridgePort(options))
                            if options.contains(&InfoBridgePort::Learning(true)))
                    });
                }
                _ => {}
            }
        }
        link
    }
}

/// Returns whether the kernel replied with this kind of error.
pub(super) fn is_error_kind(error: &rtnetlink::Error, kind: io::ErrorKind) -> bool {
    matches!(error, rtnetlink::Error::NetlinkError(message) if kind_of(&message.to_io()) == kind)
}

/// The standard library has no kind for "no such device", the kernel's error for an absent interface.
fn kind_of(error: &io::Error) -> io::ErrorKind {
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::NODEV) => io::ErrorKind::NotFound,
        _ => error.kind(),
    }
}

/// Converts an error of the kernel to one of the driver.
pub(in crate::local::network) fn netlink_error(what: &str, error: rtnetlink::Error) -> Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => io_failure(what, &message.to_io()),
        other => Error::Retry(format!("cannot {what}: {other}")),
    }
}

/// A missing privilege is permanent; everything else may pass.
pub(in crate::local::network) fn io_failure(what: &str, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Error::Permanent(format!("cannot {what}: the engine does not run as root")),
        _ => Error::Retry(format!("cannot {what}: {error}")),
    }
}

/// The kernel makes one change to the network at a time, so more threads would only contend.
const MAX_THREADS: usize = 4;

/// A limited number of blocking threads. The kernel executes a netlink message while it receives it, and removing an
/// interface takes tens of milliseconds: the runtime's threads must not block that long.
#[derive(Debug)]
pub(in crate::local::network) struct NetlinkThreads(Semaphore);

impl NetlinkThreads {
    pub(in crate::local::network) fn new() -> NetlinkThreads {
        NetlinkThreads(Semaphore::new(MAX_THREADS))
    }

    /// Runs work on a blocking thread once a permit is free. Work that has started runs to its end, even when the
    /// caller no longer waits.
    pub(in crate::local::network) async fn run_on_thread<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let _permit = self.0.acquire().await.expect("the semaphore is never closed");
        let thread = tokio::task::spawn_blocking(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            runtime.map_err(|error| io_failure("reach the network", &error))?.block_on(work())
        });
        thread.await.map_err(|error| Error::Retry(format!("cannot reach the network: {error}")))?
    }
}
