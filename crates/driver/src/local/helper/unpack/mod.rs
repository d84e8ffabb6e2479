//! Unpacking a layer of an image. Whoever made the image may mean harm, so everything that looks at its bytes, the
//! decompression too, happens in a process that can reach nothing but the layer's own directory.
//!
//! Start reading here: this process makes the `sandbox`, forks the one that works in it, and waits. `stream` is what that one
//! reads, `archive` what is in it, `entries` what it does with each thing, `tree` how it finds its way, `attributes` owners,
//! modes and the like.

mod archive;
#[cfg(test)]
mod attacks;
mod attributes;
mod entries;
mod sandbox;
mod stream;
mod tree;

use std::io;
use std::panic::AssertUnwindSafe;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, kill_process, pidfd_open, waitpid};
use rustix::thread::UnshareFlags;

use super::namespaces::Namespaces;
use super::order::{Report, Unpack};
use super::{Failure, at, kernel, say};

/// What the forked process ends with when it has said itself what is wrong.
const TOLD: i32 = 1;

/// Unpacks the layer that follows on the standard input.
pub(super) fn unpack(order: &Unpack) -> Result<(), Failure> {
    let ended = apart(order, || Ok(say(&Report::Unpacked(entries::unpack(order, io::stdin().lock())?))?))?;
    match (ended.exit_status(), ended.terminating_signal()) {
        (Some(0 | TOLD), _) => Ok(()),
        // Memory that it may not have ends it so.
        (_, Some(libc::SIGABRT | libc::SIGSEGV | libc::SIGBUS)) => {
            Err(Failure::Unfit("it needs more memory to be unpacked than that may have".into()))
        }
        _ => Err(io::Error::other("whoever unpacked the layer was ended").into()),
    }
}

/// Has something done in the sandbox, by a process of its own, which says itself what goes wrong; returns how that one ended.
fn apart(order: &Unpack, work: impl FnOnce() -> Result<(), Failure>) -> Result<WaitStatus, Failure> {
    let namespaces = Namespaces::make(order.id_base).map_err(at("the namespaces could not be made"))?;
    sandbox::leave_the_machine(&order.directory, &namespaces).map_err(at("the sandbox could not be made"))?;
    let others = UnshareFlags::NEWPID | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS | UnshareFlags::NEWCGROUP;
    kernel::unshare(others)?;
    let child = kernel::fork(|| {
        // A panic must end this process, and not go on as if it were its parent.
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| {
            sandbox::enter(&namespaces).map_err(at("the sandbox could not be entered"))?;
            work()
        }));
        let failure = match done {
            Ok(Ok(())) => return 0,
            Ok(Err(failure)) => failure,
            Err(_) => Failure::Unfit("it is broken in a way that is not understood".into()),
        };
        let _heard = say(&failure.report());
        TOLD
    })?;
    let child = Pid::from_raw(child.cast_signed()).ok_or_else(|| io::Error::other("whoever unpacks has no id"))?;
    end_with_the_engine(child)?;
    let ended = waitpid(Some(child), WaitOptions::empty())?;
    Ok(ended.ok_or_else(|| io::Error::other("whoever unpacks cannot be waited for"))?.1)
}

/// Waits until whoever unpacks has ended, and ends it when nobody listens any more: the engine has died, or gives the layer up.
/// What it has read by then may be much, unpacked, and the next engine is about to sweep its directory away.
fn end_with_the_engine(child: Pid) -> io::Result<()> {
    let (ended, output) = (pidfd_open(child, PidfdFlags::empty())?, io::stdout());
    loop {
        // Of the output nothing is asked but what is always told: that its other end was closed.
        let mut watched = [PollFd::new(&ended, PollFlags::IN), PollFd::new(&output, PollFlags::empty())];
        match poll(&mut watched, None) {
            Err(Errno::INTR) => continue,
            done => done?,
        };
        if !watched[0].revents().is_empty() {
            return Ok(());
        }
        if watched[1].revents().contains(PollFlags::ERR) {
            return Ok(kill_process(child, Signal::KILL)?);
        }
    }
}
