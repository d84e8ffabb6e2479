//! The descriptors that the driver passes to the guest: its control socket, and a pipe for its exit marker.
#![allow(unsafe_code, reason = "a raw descriptor number can only be borrowed by unsafe code")]

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

/// The number of the control socket; the first passed descriptor is 3 by convention.
const CONTROL_SOCKET: i32 = 3;

/// Takes over the control socket. Programs of the instance do not inherit it, and no path inside the instance leads to
/// it.
pub fn take_control_socket() -> io::Result<UnixListener> {
    // SAFETY: this program has not opened anything yet that could have this number and be closed while it is borrowed;
    // if the number is not open, the calls below fail.
    let given = unsafe { BorrowedFd::borrow_raw(CONTROL_SOCKET) };
    let is_listener = rustix::net::sockopt::socket_acceptconn(given).unwrap_or(false);
    if !is_listener {
        return Err(io::Error::other("file descriptor 3 is not a listening socket"));
    }
    let ours: OwnedFd = rustix::io::fcntl_dupfd_cloexec(given, CONTROL_SOCKET + 1)?;
    rustix::io::fcntl_setfd(given, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok(UnixListener::from(ours))
}

/// The number of the exit marker's descriptor.
const EXIT_MARKER: i32 = CONTROL_SOCKET + 1;

/// Prevents programs of the instance from inheriting the exit marker, and returns whether there is one.
pub fn keep_exit_marker() -> bool {
    // SAFETY: as above; if the number is not open, the calls fail.
    let given = unsafe { BorrowedFd::borrow_raw(EXIT_MARKER) };
    let is_handle = rustix::fs::fstat(given)
        .is_ok_and(|found| rustix::fs::FileType::from_raw_mode(found.st_mode) == rustix::fs::FileType::Fifo);
    is_handle && rustix::io::fcntl_setfd(given, rustix::io::FdFlags::CLOEXEC).is_ok()
}

/// Marks an orderly end of the instance, by removing the write permission of the pipe.
pub fn write_exit_marker() {
    let path = format!("/proc/self/fd/{EXIT_MARKER}");
    let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o400));
}
