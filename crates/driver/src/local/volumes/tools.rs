//! What volumes need of the host besides a disk: `mkfs.xfs`, and a kernel with XFS and loop devices.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::mount::{FsOpenFlags, fsopen};

/// Where administrative programs are; the search path of a service often lacks some of them.
const DIRECTORIES: [&str; 6] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"];

/// The tools that were found.
#[derive(Clone, Debug)]
pub(super) struct Tools {
    pub(super) mkfs: PathBuf,
}

/// Looks for all tools. The error names what is missing, for the operator and for the owner of a volume alike.
pub(super) fn find_tools() -> Result<Tools, String> {
    let missing = |what: &str| format!("this host does not support volumes: {what}");
    let Some(mkfs) = find_program("mkfs.xfs") else {
        return Err(missing("the program mkfs.xfs is missing (install the package xfsprogs)"));
    };
    // Both checks make the kernel load the module if it has one.
    if let Err(error) = fsopen("xfs", FsOpenFlags::FSOPEN_CLOEXEC) {
        tracing::debug!(%error, "the kernel cannot open XFS");
        return Err(missing("its kernel lacks the filesystem XFS (is the module xfs available?)"));
    }
    if let Err(error) = File::open("/dev/loop-control") {
        tracing::debug!(%error, "/dev/loop-control cannot be opened");
        return Err(missing("its kernel has no loop devices (is the module loop available?)"));
    }
    Ok(Tools { mkfs })
}

/// Finds a program in the usual directories.
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
