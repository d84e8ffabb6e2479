//! The user and the network namespace of an instance, created before anything else.
//!
//! They are needed early: mounts are mapped by the user namespace, and the driver connects the network while the rest
//! of the instance is still being set up. A forked process keeps them until the instance itself is in them.
//!
//! The kernel charges inotify instances, pending signals, POSIX timers and message queues of a user namespace also to
//! the user of the host that owns the namespace. If that were the host's `root`, one instance could use up what `root`
//! and all other instances may have. So the namespace is owned by the instance's own first id.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::process::{Uid, getuid};
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities, set_capabilities, set_thread_res_uid};

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
    /// Creates both, owned by `id_base`, and waits for them.
    pub(super) fn create(id_base: u32) -> io::Result<Self> {
        Keeper::fork(id_base)?.into_namespaces(id_base)
    }
}

/// The process that creates the namespaces while other work is done.
pub(super) struct Keeper {
    pid: u32,
    ours: UnixStream,
}

impl Keeper {
    /// Starts the process; `owner` is the user of the host that owns the user namespace.
    pub(super) fn fork(owner: u32) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let (mut ours, mut theirs) = (Some(ours), Some(theirs));
        let pid = kernel::fork(|| {
            // The keeper must close the helper's end, or it would not notice when the helper is gone.
            drop(ours.take());
            theirs.take().map_or(1, |helper| run_keeper(helper, owner))
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
fn run_keeper(mut helper: UnixStream, owner: u32) -> i32 {
    let made = become_owner(owner).and_then(|()| kernel::unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET));
    let answer =
        made.err().map_or(0, |error| error.raw_os_error().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX));
    if helper.write_all(&[answer]).is_err() || answer != 0 {
        return 1;
    }
    // Nothing is ever sent: this returns when the helper closes its end or dies.
    let _nothing = helper.read(&mut [0]);
    0
}

/// Gives this process the effective user id that will own the namespace. The change clears the effective capabilities;
/// the one to create namespaces is raised again, because some hosts let no other process create user namespaces.
fn become_owner(owner: u32) -> io::Result<()> {
    let real = getuid();
    if owner == real.as_raw() {
        return Ok(());
    }
    set_thread_res_uid(real, Uid::from_raw(owner), real)?;
    let mut sets = capabilities(None)?;
    sets.effective = sets.permitted & CapabilitySet::SYS_ADMIN;
    Ok(set_capabilities(None, sets)?)
}
