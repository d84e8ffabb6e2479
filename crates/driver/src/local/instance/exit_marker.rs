//! The marker by which a guest records that it exited by itself, as opposed to being killed.
//!
//! No process waits for the guest, and a file that it writes to could be used to fill the host's disk. So the guest
//! inherits, as descriptor 4, a handle to a named pipe that belongs to the instance's `root`. Before an orderly exit it
//! removes its own write permission: `chmod 0400` on `/proc/self/fd/4`. A mode takes no disk space. `root` in the
//! instance can set the marker too early; then a kill looks like an orderly exit, which affects no other tenant.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, openat};

const NAME: &str = "ended";

/// The mode that marks an orderly exit.
const EXITED_MODE: u32 = 0o400;

/// Creates the pipe in an instance's run directory and returns a handle to it.
pub(in crate::local) fn create_exit_marker(run: &Path, owner: u32) -> io::Result<OwnedFd> {
    let path = run.join(NAME);
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    chown(&path, Some(owner), Some(owner))?;
    Ok(openat(CWD, &path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// Returns whether the guest marked an orderly exit.
pub(in crate::local) fn is_exit_marked(run: &Path) -> bool {
    fs::symlink_metadata(run.join(NAME)).is_ok_and(|found| found.mode() & 0o777 == EXITED_MODE)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The marker is set through the inherited handle.
    #[test]
    fn exit_is_marked_through_handle() {
        let run = tempfile::tempdir().unwrap();
        let own = rustix::process::getuid().as_raw();
        let handle = create_exit_marker(run.path(), own).unwrap();
        assert!(!is_exit_marked(run.path()));
        let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
        fs::set_permissions(path, fs::Permissions::from_mode(EXITED_MODE)).unwrap();
        assert!(is_exit_marked(run.path()));
    }
}
