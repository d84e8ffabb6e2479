//! The way into the network namespace of an instance.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::netlink::{Netlink, failed};
use crate::Error;
use crate::local::network::kernel_settings;

/// The network namespace of a process, held open so that everything goes to the same one even if the process ends.
#[derive(Debug)]
pub(super) struct Namespace(File);

impl Namespace {
    /// The namespace of a process. The machine's own is refused: an `eth0` made there would be the host's.
    pub(in crate::local::network) fn of(pid: u32) -> Result<Namespace, Error> {
        let what = "reach the network of the instance";
        let file = File::open(format!("/proc/{pid}/ns/net")).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::Retry(format!("cannot {what}: its process is gone")),
            _ => failed(what, &error),
        })?;
        let theirs = file.metadata().map_err(|error| failed(what, &error))?;
        let ours = fs::metadata("/proc/thread-self/ns/net").map_err(|error| failed(what, &error))?;
        match (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino()) {
            true => Err(Error::Permanent("the instance has no network of its own".to_owned())),
            false => Ok(Namespace(file)),
        }
    }

    /// The number by which the kernel is told to make an interface there.
    pub(super) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Opens a socket that speaks of this namespace. The thread that enters it is made for this and ends at once: one that
    /// the runtime uses again would carry the namespace into other work.
    pub(super) async fn enter(&self) -> Result<Netlink, Error> {
        let what = "enter the network of the instance";
        let file = self.0.try_clone().map_err(|error| failed(what, &error))?;
        let runtime = Handle::current();
        let (sender, receiver) = oneshot::channel();
        let work = move || {
            let _context = runtime.enter();
            let result = move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(io::Error::from)
                .and_then(|()| kernel_settings::no_new_ipv6())
                .map_err(|error| failed(what, &error))
                .and_then(|()| Netlink::open());
            // Nobody listens any more when the caller gave up, and then the socket closes here.
            let _ = sender.send(result);
        };
        std::thread::Builder::new()
            .name("tarn-namespace".to_owned())
            .spawn(work)
            .map_err(|error| failed(what, &error))?;
        receiver.await.map_err(|_| Error::Retry(format!("cannot {what}: its thread ended")))?
    }
}
