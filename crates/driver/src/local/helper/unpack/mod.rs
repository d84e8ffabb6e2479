//! Unpacks a layer of an image. An image may be malicious, so everything that reads its bytes, including the
//! decompression, runs in a process that can reach nothing but the layer's own directory.
//!
//! Start reading here: this process creates the `sandbox`, forks the process that works in it, and waits. `stream` is
//! what that process reads, `entries` what it does with each entry in it, `tree` the paths, `attributes` owners, modes
//! and the like.

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
use super::{Failure, kernel, send_report, with_context};

/// The exit status of a forked process that has reported its failure itself.
const REPORTED: i32 = 1;

/// Unpacks the layer that follows on the standard input.
pub(super) fn unpack_stdin(order: &Unpack) -> Result<(), Failure> {
    let ended = run_in_sandbox(order, || {
        Ok(send_report(&Report::Unpacked(entries::unpack_archive(order, io::stdin().lock())?))?)
    })?;
    match (ended.exit_status(), ended.terminating_signal()) {
        (Some(0 | REPORTED), _) => Ok(()),
        // This is how it ends when it exceeds its memory limit.
        (_, Some(libc::SIGABRT | libc::SIGSEGV | libc::SIGBUS)) => {
            Err(Failure::Unfit("unpacking it needs more memory than is allowed".into()))
        }
        _ => Err(io::Error::other("the process that unpacked the layer was killed").into()),
    }
}

/// Runs work in the sandbox, in a separate process that reports failures itself; returns how that process ended.
fn run_in_sandbox(order: &Unpack, work: impl FnOnce() -> Result<(), Failure>) -> Result<WaitStatus, Failure> {
    let namespaces = Namespaces::create(order.id_base).map_err(with_context("the namespaces could not be created"))?;
    sandbox::isolate_mounts(&order.directory, &namespaces).map_err(with_context("the sandbox could not be created"))?;
    let others = UnshareFlags::NEWPID | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS | UnshareFlags::NEWCGROUP;
    kernel::unshare(others)?;
    let child = kernel::fork(|| {
        // A panic must end this process, and not unwind into the code of its parent.
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| {
            sandbox::drop_privileges(&namespaces).map_err(with_context("the sandbox could not be entered"))?;
            work()
        }));
        let failure = match done {
            Ok(Ok(())) => return 0,
            Ok(Err(failure)) => failure,
            Err(_) => Failure::Unfit("it is malformed in an unexpected way".into()),
        };
        let _heard = send_report(&failure.report());
        REPORTED
    })?;
    let child =
        Pid::from_raw(child.cast_signed()).ok_or_else(|| io::Error::other("the unpacking process has no id"))?;
    kill_when_engine_is_gone(child)?;
    let ended = waitpid(Some(child), WaitOptions::empty())?;
    Ok(ended.ok_or_else(|| io::Error::other("the unpacking process cannot be waited for"))?.1)
}

/// Waits until the unpacking process has ended, and kills it when the output is closed: the engine has died, or has
/// abandoned the layer. The process may still have much data to unpack, while the next engine is about to remove its
/// directory.
fn kill_when_engine_is_gone(child: Pid) -> io::Result<()> {
    let (ended, output) = (pidfd_open(child, PidfdFlags::empty())?, io::stdout());
    loop {
        // An error on the output is always reported, without asking for events: its other end was closed.
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
