//! Calls that mount and change mounts, shared by starting, unpacking and probing.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use libcontainer::syscall::linux::{self, LinuxSyscall, MountAttr};
use libcontainer::syscall::{Syscall, SyscallError};
use rustix::mount::{MountFlags, mount};

use super::with_context;

/// `MOUNT_ATTR_IDMAP` of the kernel's interface.
const IDMAP: u64 = 0x0010_0000;

/// Adds attributes to a detached mount and, if given, maps its ids by a user namespace.
pub(super) fn set_mount_attributes(tree: &OwnedFd, attributes: u64, ids: Option<&OwnedFd>) -> io::Result<()> {
    let mut change = MountAttr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    if let Some(ids) = ids {
        change.attr_set |= IDMAP;
        change.userns_fd = u64::from(ids.as_raw_fd().unsigned_abs());
    }
    LinuxSyscall
        .mount_setattr(tree.as_fd(), Path::new(""), linux::AT_EMPTY_PATH, &change, size_of::<MountAttr>())
        .map_err(|error| match error {
            SyscallError::Nix(errno) => errno.into(),
            other => io::Error::other(other),
        })
}

/// Mounts an overlay, by a path relative to the working directory.
pub(super) fn mount_overlay(at: &str, options: &str) -> io::Result<()> {
    let options = CString::new(options)?;
    // Set-user-id programs such as `sudo` must work inside.
    mount("tarn", at, "overlay", MountFlags::NODEV, options.as_c_str())
        .map_err(|error| with_context(format!("the overlay at {at} failed"))(error.into()))
}
