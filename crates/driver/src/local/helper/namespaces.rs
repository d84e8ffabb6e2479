//! The user and the network namespace of an instance, made before anything else.
//!
//! They are needed early: mounts are mapped by the user namespace, and the driver connects the network while the rest of
//! the instance is still being made. A forked process keeps them until the instance itself is in them.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::thread::UnshareFlags;

use super::kernel;
use crate::local::host::id_ranges::IDS;

/// Both namespaces, and the process that keeps them.
pub(super) struct Namespaces {
    /// The process that is in them.
    pub(super) pid: u32,
    /// The user namespace.
    pub(super) user: OwnedFd,
    /// The network namespace.
    pub(super) network: OwnedFd,
    /// The keeper ends when this is closed, also when the helper dies.
    _keeper: UnixStream,
}

impl Namespaces {
    /// Makes them at once, for whoever has nothing else to do meanwhile.
    pub(super) fn make(id_base: u32) -> io::Result<Self> {
        Keeper::begin()?.finish(id_base)
    }
}

/// The process that makes the namespaces, while something else is done.
pub(super) struct Keeper {
    pid: u32,
    ours: UnixStream,
}

impl Keeper {
    /// Has it begin.
    pub(super) fn begin() -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let (mut ours, mut theirs) = (Some(ours), Some(theirs));
        let pid = kernel::fork(|| {
            // The keeper must close the helper's end, or it would never notice that the helper is gone.
            drop(ours.take());
            theirs.take().map_or(1, keep)
        })?;
        drop(theirs);
        Ok(Keeper { pid, ours: ours.expect("only the forked process takes it") })
    }

    /// Waits for the namespaces, and gives them the ids from `id_base` on as the ids from 0 on.
    pub(super) fn finish(self, id_base: u32) -> io::Result<Namespaces> {
        let Keeper { pid, mut ours } = self;
        let mut answer = [0];
        ours.read_exact(&mut answer).map_err(|_| io::Error::other("the keeper of the namespaces ended"))?;
        if answer != [0] {
            return Err(io::Error::from_raw_os_error(i32::from(answer[0])));
        }
        for map in ["uid_map", "gid_map"] {
            fs::write(format!("/proc/{pid}/{map}"), format!("0 {id_base} {IDS}"))?;
        }
        let open = |kind: &str| File::open(format!("/proc/{pid}/ns/{kind}")).map(OwnedFd::from);
        Ok(Namespaces { pid, user: open("user")?, network: open("net")?, _keeper: ours })
    }
}

/// The whole life of the keeper: makes the namespaces, says how it went, and waits for its end.
fn keep(mut helper: UnixStream) -> i32 {
    let made = kernel::unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET);
    let answer =
        made.err().map_or(0, |error| error.raw_os_error().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX));
    if helper.write_all(&[answer]).is_err() || answer != 0 {
        return 1;
    }
    // Nothing is ever sent: this returns when the helper closes its end or dies.
    let _nothing = helper.read(&mut [0]);
    0
}
