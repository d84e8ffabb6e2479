//! Unpacking a layer of an image. Whoever made the image may mean harm, so everything that looks at its bytes, the
//! decompression too, happens in a process that can reach nothing but the layer's own directory.
//!
//! Start reading here: this process makes the `sandbox`, forks the one that works in it, and waits. `stream` is what that one
//! reads, `entries` what it does with each thing in the archive, `tree` how it finds its way, `attributes` owners, modes and
//! the like.

mod attributes;
mod entries;
mod sandbox;
mod stream;
mod tree;

use std::io;
use std::panic::AssertUnwindSafe;

use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::UnshareFlags;

use super::namespaces::Namespaces;
use super::order::{Report, Unpack, Unpacked};
use super::{Failure, at, kernel, say};

/// What the forked process ends with when it has said itself what is wrong.
const TOLD: i32 = 1;

/// Unpacks the layer that follows on the standard input.
pub(super) fn unpack(order: &Unpack) -> Result<(), Failure> {
    let namespaces = Namespaces::make(order.id_base).map_err(at("the namespaces could not be made"))?;
    sandbox::leave_the_machine(&order.directory, &namespaces).map_err(at("the sandbox could not be made"))?;
    let others = UnshareFlags::NEWPID | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS | UnshareFlags::NEWCGROUP;
    kernel::unshare(others)?;
    let child = kernel::fork(|| {
        // A panic must end this process, and not go on as if it were its parent.
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| work(order, &namespaces)));
        let failure = match done {
            Ok(Ok(unpacked)) => return i32::from(say(&Report::Unpacked(unpacked)).is_err()),
            Ok(Err(failure)) => failure,
            Err(_) => Failure::Unfit("it is broken in a way that is not understood".into()),
        };
        let _heard = say(&failure.report());
        TOLD
    })?;
    let child = Pid::from_raw(child.cast_signed());
    match waitpid(child, WaitOptions::empty())?.map(|(_, status)| (status.exit_status(), status.terminating_signal())) {
        Some((Some(0 | TOLD), _)) => Ok(()),
        // Memory that it may not have ends it so.
        Some((_, Some(libc::SIGABRT | libc::SIGSEGV | libc::SIGBUS))) => {
            Err(Failure::Unfit("it needs more memory to be unpacked than that may have".into()))
        }
        _ => Err(io::Error::other("whoever unpacked the layer was ended").into()),
    }
}

/// What the forked process does.
fn work(order: &Unpack, namespaces: &Namespaces) -> Result<Unpacked, Failure> {
    sandbox::enter(namespaces).map_err(at("the sandbox could not be entered"))?;
    entries::unpack(order)
}
