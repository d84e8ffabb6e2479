//! How an instance says that it ended by itself, so that this can be told from a violent end.
//!
//! Nobody waits for the guest when it exits, and what it writes into a file could be made to fill the machine's disk. So it
//! inherits, as descriptor 4, a handle to a named pipe that belongs to the instance's `root`, and when it ends in good order
//! it takes away its own right to write there: `chmod 0400` on `/proc/self/fd/4`. A mode cannot grow. Who is `root` inside
//! can say so too early; then a violent end looks like an orderly one, which harms nobody else.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, openat};

const NAME: &str = "ended";

/// The mode that means that the guest has ended in good order.
const EXITED_MODE: u32 = 0o400;

/// Makes the pipe in an instance's directory, and a handle to it.
pub(in crate::local) fn create_exit_marker(run: &Path, owner: u32) -> io::Result<OwnedFd> {
    let path = run.join(NAME);
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    chown(&path, Some(owner), Some(owner))?;
    Ok(openat(CWD, &path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// Whether the guest has said it.
pub(in crate::local) fn is_exit_marked(run: &Path) -> bool {
    fs::symlink_metadata(run.join(NAME)).is_ok_and(|found| found.mode() & 0o777 == EXITED_MODE)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn is_said_through_the_handle() {
        let run = tempfile::tempdir().unwrap();
        let own = rustix::process::getuid().as_raw();
        let handle = create_exit_marker(run.path(), own).unwrap();
        assert!(!is_exit_marked(run.path()));
        let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
        fs::set_permissions(path, fs::Permissions::from_mode(EXITED_MODE)).unwrap();
        assert!(is_exit_marked(run.path()));
    }
}
