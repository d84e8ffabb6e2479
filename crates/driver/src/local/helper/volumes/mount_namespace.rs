//! Access to the mount namespace of an instance, and its mount table.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::local::host::mount_tables;
use crate::local::host::processes::Process;

/// The namespaces of an instance, held open so that they stay the same even if its process ends.
pub(super) struct MountNamespace {
    mounts: File,
    table: File,
    /// The user namespace.
    pub(in crate::local::helper) user: OwnedFd,
}

impl MountNamespace {
    /// Opens the namespaces of a process; `None` when it has ended. A reuse of its process id is detected after they
    /// were opened; a check before could miss it. The host's own namespace is refused.
    pub(super) fn of_process(process: &Process) -> io::Result<Option<Self>> {
        let opened = open_namespaces(process.pid);
        if !process.alive()? || opened.as_ref().is_err_and(mount_tables::is_process_gone) {
            return Ok(None);
        }
        let inside = opened?;
        let (theirs, ours) = (inside.mounts.metadata()?, fs::metadata("/proc/self/ns/mnt")?);
        if (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino()) {
            return Err(io::Error::other("the instance has no mounts of its own"));
        }
        Ok(Some(inside))
    }

    /// Enters the namespace for good: from now on `/` is the root of the instance.
    pub(super) fn enter_mount_namespace(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.mounts.as_fd(), Some(LinkNameSpaceType::Mount))?)
    }

    /// Returns where in the instance a device is mounted, if it is. The open mount table stays that of the instance.
    pub(super) fn find_mount(&mut self, number: u64) -> io::Result<Option<PathBuf>> {
        let mut table = Vec::new();
        self.table.rewind()?;
        self.table.read_to_end(&mut table)?;
        Ok(mount_tables::parse_mounts(&table).find(|mount| mount.device == number).map(|mount| mount.path))
    }
}

fn open_namespaces(pid: u32) -> io::Result<MountNamespace> {
    let open = |what: &str| File::open(format!("/proc/{pid}/{what}"));
    Ok(MountNamespace { mounts: open("ns/mnt")?, table: open("mountinfo")?, user: open("ns/user")?.into() })
}
