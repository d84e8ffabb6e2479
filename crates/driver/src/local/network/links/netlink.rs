//! A conversation with the kernel's routing socket, and the few questions that all verbs ask: is this interface there, and is
//! it ours.

use std::collections::BTreeMap;
use std::io;

use futures::TryStreamExt;
use rtnetlink::Handle;
use rtnetlink::packet_route::link::{
    InfoBridgePort, InfoKind, InfoPortData, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, State,
};
use tokio::task::JoinHandle;

use crate::Error;
use crate::local::network::identity::Identity;

/// An open socket. It belongs to the network namespace of the thread that opened it.
#[derive(Debug)]
pub(in crate::local::network) struct Netlink {
    pub(in crate::local::network) handle: Handle,
    reader: JoinHandle<()>,
}

/// An interface, as far as the verbs look at it.
#[derive(Debug)]
pub(super) struct Link {
    pub(in crate::local::network) index: u32,
    pub(in crate::local::network) up: bool,
    /// Whether packets go through: the kernel gets a new interface ready a moment after it is up.
    pub(super) ready: bool,
    /// The index of the other side of a pair, in whatever namespace that is.
    pub(super) other_side: Option<u32>,
    /// The bridge that it is plugged into.
    pub(in crate::local::network) bridge: Option<u32>,
    /// Whether the bridge believes whatever comes through it.
    pub(super) learns: bool,
    pub(in crate::local::network) name: String,
    kind: Option<InfoKind>,
    group: u32,
}

impl Netlink {
    /// Opens a socket in the namespace of the calling thread, which must be inside of the runtime's context.
    pub(in crate::local::network) fn open() -> Result<Netlink, Error> {
        let (connection, handle, _) =
            rtnetlink::new_connection().map_err(|error| failed("reach the network", &error))?;
        Ok(Netlink { handle, reader: tokio::spawn(connection) })
    }

    /// The interface of that name, whoever made it.
    pub(in crate::local::network) async fn link(&self, name: &str) -> Result<Option<Link>, Error> {
        let mut answers = Box::pin(self.handle.link().get().match_name(name).execute());
        match answers.try_next().await {
            Ok(message) => Ok(message.as_ref().map(Link::from)),
            Err(error) if is(&error, io::ErrorKind::NotFound) => Ok(None),
            Err(error) => Err(refused("look at an interface", error)),
        }
    }

    /// The interface of that name if it is this installation's; one of somebody else is an error, and is not touched.
    pub(in crate::local::network) async fn own(
        &self,
        identity: &Identity,
        name: &str,
        kind: InfoKind,
    ) -> Result<Option<Link>, Error> {
        match self.link(name).await? {
            Some(link) if link.group != identity.group() || link.kind != Some(kind) => {
                Err(Error::Permanent(format!("there is an interface {name} on the machine that Tarn did not make")))
            }
            link => Ok(link),
        }
    }

    /// All interfaces of the installation: names by index.
    pub(in crate::local::network) async fn owned(&self, identity: &Identity) -> Result<BTreeMap<u32, String>, Error> {
        Ok(self.owned_links(identity).await?.into_iter().map(|link| (link.index, link.name)).collect())
    }

    /// All interfaces of the installation.
    pub(super) async fn owned_links(&self, identity: &Identity) -> Result<Vec<Link>, Error> {
        let links = self.handle.link().get().execute().map_ok(|message| Link::from(&message));
        let ours = links.try_filter(|link| {
            let ours = link.group == identity.group() && link.name.starts_with(&identity.interfaces());
            std::future::ready(ours)
        });
        ours.try_collect().await.map_err(|error| refused("list the interfaces", error))
    }

    /// Removes an interface of this installation, and returns when its name is seen to be free.
    pub(in crate::local::network) async fn remove(
        &self,
        identity: &Identity,
        name: &str,
        kind: InfoKind,
    ) -> Result<(), Error> {
        match self.own(identity, name, kind).await? {
            Some(link) => self.delete(link.index, name).await,
            None => Ok(()),
        }
    }

    /// Removes an interface that is known to be ours, and returns when its name is seen to be free.
    pub(in crate::local::network) async fn delete(&self, index: u32, name: &str) -> Result<(), Error> {
        match self.handle.link().del(index).execute().await {
            Err(error) if !is(&error, io::ErrorKind::NotFound) => return Err(refused("remove an interface", error)),
            _ => {}
        }
        match self.link(name).await? {
            None => Ok(()),
            Some(_) => Err(Error::Retry(format!("the interface {name} is still there"))),
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

/// Whether the kernel answered with this error.
pub(in crate::local::network) fn is(error: &rtnetlink::Error, kind: io::ErrorKind) -> bool {
    matches!(error, rtnetlink::Error::NetlinkError(message) if kind_of(&message.to_io()) == kind)
}

/// The standard library has no kind for "no such device", which is what the kernel says of an absent interface.
fn kind_of(error: &io::Error) -> io::ErrorKind {
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::NODEV) => io::ErrorKind::NotFound,
        _ => error.kind(),
    }
}

/// What the kernel refused to do, in the words of the driver.
pub(in crate::local::network) fn refused(what: &str, error: rtnetlink::Error) -> Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => failed(what, &message.to_io()),
        other => Error::Retry(format!("cannot {what}: {other}")),
    }
}

/// A missing privilege stays missing; everything else may pass.
pub(in crate::local::network) fn failed(what: &str, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Error::Permanent(format!("cannot {what}: the engine does not run as root")),
        _ => Error::Retry(format!("cannot {what}: {error}")),
    }
}
