//! Access to the network namespace of an instance.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::netlink::{Netlink, io_failure};
use crate::Error;
use crate::local::network::kernel_settings;

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
