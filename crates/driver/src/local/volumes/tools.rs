//! What volumes need of the machine besides a disk: a program, and a kernel that knows XFS and loop devices.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::mount::{FsOpenFlags, fsopen};

/// Where programs of administrators are; services often run with a search path that lacks some.
const DIRECTORIES: [&str; 6] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"];

/// What was found.
#[derive(Clone, Debug)]
pub(super) struct Tools {
    /// The program that makes a filesystem.
    pub(super) mkfs: PathBuf,
}

/// Looks for everything; the error says what is missing and is for the operator and for the owner of a volume alike.
pub(super) fn find_tools() -> Result<Tools, String> {
    let missing = |what: &str| format!("this machine cannot have volumes: {what}");
    let Some(mkfs) = find_program("mkfs.xfs") else {
        return Err(missing("the program mkfs.xfs is missing (install the package xfsprogs)"));
    };
    // Both questions make the kernel load what it has as a module.
    if let Err(error) = fsopen("xfs", FsOpenFlags::FSOPEN_CLOEXEC) {
        tracing::debug!(%error, "XFS was asked for");
        return Err(missing("its kernel does not know the filesystem XFS (is the module xfs there?)"));
    }
    if let Err(error) = File::open("/dev/loop-control") {
        tracing::debug!(%error, "loop devices were asked for");
        return Err(missing("its kernel has no loop devices (is the module loop there?)"));
    }
    Ok(Tools { mkfs })
}

/// Where a program is, if there is one.
fn find_program(name: &str) -> Option<PathBuf> {
    DIRECTORIES
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| is_executable(path).unwrap_or(false))
}

fn is_executable(path: &Path) -> io::Result<bool> {
    let found = fs::metadata(path)?;
    Ok(found.is_file() && found.permissions().mode() & 0o111 != 0)
}
