//! What the engine's driver hands over when it starts the guest: its control socket, and a handle for its last word.
#![allow(unsafe_code, reason = "a number becomes a descriptor only by saying that it is one")]

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

/// The number that the first handed-over socket has by convention.
const FIRST: i32 = 3;

/// Takes over the listening socket. Programs that the guest starts do not get it, and no path inside the instance leads to it.
pub fn control_socket() -> io::Result<UnixListener> {
    // SAFETY: nothing in this program has been opened yet that could have this number and be closed while it is borrowed; if
    // nobody has it, the calls below say so.
    let given = unsafe { BorrowedFd::borrow_raw(FIRST) };
    let is_listener = rustix::net::sockopt::socket_acceptconn(given).unwrap_or(false);
    if !is_listener {
        return Err(io::Error::other("file descriptor 3 is not a listening socket"));
    }
    let ours: OwnedFd = rustix::io::fcntl_dupfd_cloexec(given, FIRST + 1)?;
    rustix::io::fcntl_setfd(given, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok(UnixListener::from(ours))
}

/// The number of the handle for the last word.
const LAST_WORD: i32 = FIRST + 1;

/// Keeps the handle for the last word away from the programs that the guest starts, and says whether there is one.
pub fn keep_last_word() -> bool {
    // SAFETY: as above; a number that nobody has makes the calls fail, which is as good.
    let given = unsafe { BorrowedFd::borrow_raw(LAST_WORD) };
    let is_handle = rustix::fs::fstat(given)
        .is_ok_and(|found| rustix::fs::FileType::from_raw_mode(found.st_mode) == rustix::fs::FileType::Fifo);
    is_handle && rustix::io::fcntl_setfd(given, rustix::io::FdFlags::CLOEXEC).is_ok()
}

/// Says that the instance ends in good order, by giving up the right to write to what the handle leads to.
pub fn say_last_word() {
    let path = format!("/proc/self/fd/{LAST_WORD}");
    let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o400));
}
