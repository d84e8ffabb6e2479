//! The way into the mount namespace of an instance, and what is mounted there.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::local::mount_tables;
use crate::local::processes::Process;

/// The namespaces of an instance, held open so that everything goes to the same ones even if its process ends.
pub(super) struct Inside {
    mounts: File,
    table: File,
    /// Its user namespace.
    pub(in crate::local::helper) user: OwnedFd,
}

impl Inside {
    /// The namespaces of a process; `None` when it has ended. Another one that has its number now is found out after they
    /// were opened, and not before, when it could still have got it. The machine's own namespace is refused.
    pub(in crate::local::helper) fn of(process: &Process) -> io::Result<Option<Self>> {
        let opened = open(process.pid);
        if !process.alive()? || opened.as_ref().is_err_and(mount_tables::is_of_the_dead) {
            return Ok(None);
        }
        let inside = opened?;
        let (theirs, ours) = (inside.mounts.metadata()?, fs::metadata("/proc/self/ns/mnt")?);
        if (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino()) {
            return Err(io::Error::other("the instance has no mounts of its own"));
        }
        Ok(Some(inside))
    }

    /// Goes there for good: from now on `/` is the root of the instance.
    pub(in crate::local::helper) fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.mounts.as_fd(), Some(LinkNameSpaceType::Mount))?)
    }

    /// Where in the instance a device is mounted now, if it is. The open table goes on to speak of the instance.
    pub(in crate::local::helper) fn find(&mut self, number: u64) -> io::Result<Option<PathBuf>> {
        let mut table = Vec::new();
        self.table.rewind()?;
        self.table.read_to_end(&mut table)?;
        Ok(mount_tables::parse(&table).find(|mount| mount.device == number).map(|mount| mount.place))
    }
}

fn open(pid: u32) -> io::Result<Inside> {
    let open = |what: &str| File::open(format!("/proc/{pid}/{what}"));
    Ok(Inside { mounts: open("ns/mnt")?, table: open("mountinfo")?, user: open("ns/user")?.into() })
}
