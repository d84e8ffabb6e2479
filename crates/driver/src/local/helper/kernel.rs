//! The system calls of the helper that have no safe form in the libraries: three, each behind a function that is safe in a
//! process with one thread, which the helper is.
#![allow(unsafe_code, reason = "close_range, fork and unshare have no safe wrapper")]

use std::io;

use rustix::thread::UnshareFlags;

/// Closes whatever the parent left open besides the three standard descriptors, so that nothing of the engine can reach an
/// instance and the next descriptor that is opened is number 3.
///
/// Only for the first line of a process: descriptors that the program itself has opened would be closed under its hands.
pub(super) fn close_inherited() -> io::Result<()> {
    // SAFETY: the caller has opened nothing yet, so no owned descriptor is closed behind its owner's back.
    let done = unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Runs `child` in a forked process that ends with it, and returns the id of that process.
pub(super) fn fork(child: impl FnOnce() -> i32) -> io::Result<u32> {
    // SAFETY: the helper has one thread, so the child inherits no lock that somebody else holds; it ends by `_exit` and
    // never returns into the code of its parent.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = child();
            // SAFETY: ends this process and has no precondition.
            unsafe { libc::_exit(code) }
        }
        pid => Ok(pid.unsigned_abs()),
    }
}

/// Moves this process into new namespaces; in a program with threads only the calling one, and only where the kernel has
/// namespaces for each thread, as it has of the network.
pub(in crate::local) fn unshare(namespaces: UnshareFlags) -> io::Result<()> {
    // SAFETY: only namespaces are asked for, never a table of descriptors of its own, which is what makes the call unsafe.
    unsafe { rustix::thread::unshare_unsafe(namespaces - UnshareFlags::FILES) }?;
    Ok(())
}
