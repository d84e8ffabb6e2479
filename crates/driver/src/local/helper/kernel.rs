//! The system calls of the helper that have no safe wrapper: three, each behind a function that is safe in a
//! single-threaded process such as the helper.
#![allow(unsafe_code, reason = "close_range, fork and unshare have no safe wrapper")]

use std::io;

use rustix::thread::UnshareFlags;

/// Closes all inherited descriptors except the three standard ones, so that nothing of the engine can reach an instance
/// and the next descriptor that is opened is number 3.
///
/// Call it first in a process: it would also close descriptors that the program itself has opened.
pub(super) fn close_inherited() -> io::Result<()> {
    // SAFETY: the caller has opened nothing yet, so no owned descriptor is closed.
    let done = unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Runs `child` in a forked process that ends with it, and returns its process id.
pub(super) fn fork(child: impl FnOnce() -> i32) -> io::Result<u32> {
    // SAFETY: the helper has one thread, so the child inherits no lock that another thread holds; it ends by `_exit`
    // and never returns into the code of its parent.
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

/// Moves this process into new namespaces. In a program with threads only the calling thread moves, and only into
/// namespaces that the kernel has per thread, such as the network.
pub(in crate::local) fn unshare(namespaces: UnshareFlags) -> io::Result<()> {
    // SAFETY: only namespaces are requested, never a separate descriptor table, which is what makes the call unsafe.
    unsafe { rustix::thread::unshare_unsafe(namespaces - UnshareFlags::FILES) }?;
    Ok(())
}
