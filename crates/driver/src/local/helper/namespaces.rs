//! The user and the network namespace of an instance, created before anything else.
//!
//! They are needed early: mounts are mapped by the user namespace, and the driver connects the network while the rest
//! of the instance is still being set up. A forked process keeps them until the instance itself is in them.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::thread::UnshareFlags;

use super::kernel;
use crate::local::host::id_ranges::IDS;

/// Both namespaces, and the process that keeps them.
pub(super) struct Namespaces {
    /// The process in them.
    pub(super) pid: u32,
    pub(super) user: OwnedFd,
    pub(super) network: OwnedFd,
    /// The keeper ends when this is closed, also when the helper dies.
    _keeper: UnixStream,
}

impl Namespaces {
    /// Creates both and waits for them.
    pub(super) fn create(id_base: u32) -> io::Result<Self> {
        Keeper::fork()?.into_namespaces(id_base)
    }
}

/// The process that creates the namespaces while other work is done.
pub(super) struct Keeper {
    pid: u32,
    ours: UnixStream,
}

impl Keeper {
    /// Starts the process.
    pub(super) fn fork() -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let (mut ours, mut theirs) = (Some(ours), Some(theirs));
        let pid = kernel::fork(|| {
            // The keeper must close the helper's end, or it would not notice when the helper is gone.
            drop(ours.take());
            theirs.take().map_or(1, run_keeper)
        })?;
        drop(theirs);
        Ok(Keeper { pid, ours: ours.expect("only the forked process takes it") })
    }

    /// Waits for the namespaces, and maps the ids from `id_base` on to the ids from 0 on.
    pub(super) fn into_namespaces(self, id_base: u32) -> io::Result<Namespaces> {
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

/// Runs the keeper: creates the namespaces, reports the result, and waits for its end.
fn run_keeper(mut helper: UnixStream) -> i32 {
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
