//! The mount points of volumes: empty directories `/mnt/<storage id>` on an instance's own disk.
//!
//! The tenant's `root` may have put anything there, and may change it at any moment. So every step goes from an open
//! directory to the next, without following links or entering other mounts. A mount point is immutable: while nothing
//! is mounted there, the tenant cannot write there. That also identifies it.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::fs::{
    AtFlags, Dir, Gid, IFlags, Mode, OFlags, ResolveFlags, Uid, fchmod, fchown, ioctl_getflags, ioctl_setflags,
    mkdirat, openat2, unlinkat,
};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tarn_model::ids::VolumeId;

use crate::local::helper::Failure;
use crate::local::helper::order::{Refused, Why};
use crate::local::host::files::open_directory_beneath;
use crate::local::host::mount_tables;
use crate::local::host::processes::Process;

/// The directory of all mount points, in the root of an instance.
const ALL: &str = "mnt";

/// How many names are examined for unused mount points.
const MAX_NAMES: usize = 10_000;

/// A mount point, held open.
pub(super) struct MountPoint {
    parent: OwnedFd,
    name: String,
    pub(in crate::local::helper) directory: OwnedFd,
}

impl MountPoint {
    /// Creates the mount point of a volume below the root of an instance, or uses the existing one.
    pub(in crate::local::helper) fn prepare(root: &OwnedFd, volume: &VolumeId, owner: u32) -> Result<Self, Failure> {
        let taken = |what: String| Failure::Refused(Refused { volume: volume.clone(), why: Why::Taken { what } });
        let explain = |error: Errno, path: String| match error {
            Errno::LOOP | Errno::NOTDIR | Errno::XDEV => {
                taken(format!("{path} is not a plain directory there; move it away"))
            }
            other => Failure::Failed(io::Error::from(other)),
        };
        let parent = ensure_subdirectory(root, ALL, 0o755, owner).map_err(|error| explain(error, format!("/{ALL}")))?;
        let path = format!("/{ALL}/{volume}");
        let directory = ensure_subdirectory(&parent, volume.as_str(), 0o555, owner)
            .map_err(|error| explain(error, path.clone()))?;
        if !is_directory_empty(&directory)? {
            return Err(taken(format!("{path} is not empty there; move away what is in it")));
        }
        let flags = ioctl_getflags(&directory)?;
        ioctl_setflags(&directory, flags | IFlags::IMMUTABLE)?;
        // A process may have written there before the flag was set.
        if !is_directory_empty(&directory)? {
            ioctl_setflags(&directory, flags - IFlags::IMMUTABLE)?;
            return Err(taken(format!("{path} is not empty there; move away what is in it")));
        }
        Ok(MountPoint { parent, name: volume.to_string(), directory })
    }

    /// Removes it again, if it still exists.
    pub(super) fn remove(self) {
        // A leftover mount point is harmless: the next start of the instance removes it.
        let _stays = remove_mount_point(&self.parent, self.name.as_str());
    }
}

/// Opens what is at the path of a volume below the root of an instance now, in whatever mount.
pub(super) fn open_volume_directory(root: &OwnedFd, volume: &VolumeId) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    openat2(root, format!("{ALL}/{volume}"), flags, Mode::empty(), resolve)
}

/// Removes the mount points of all volumes except these. Only an immutable and empty directory is a mount point.
pub(in crate::local::helper) fn sweep_mount_points(root: &OwnedFd, keep: &[VolumeId]) {
    let Ok(parent) = open_directory_beneath(root, ALL) else { return };
    let Ok(entries) = Dir::read_from(&parent) else { return };
    for entry in entries.take(MAX_NAMES).flatten() {
        let name = entry.file_name();
        let volume = name.to_str().ok().and_then(|name| name.parse::<VolumeId>().ok());
        if volume.is_some_and(|volume| !keep.contains(&volume)) {
            // A leftover mount point is harmless.
            let _stays = remove_mount_point(&parent, name);
        }
    }
}

/// Removes a mount point; anything else is left as it is.
pub(super) fn remove_mount_point(parent: &OwnedFd, name: impl rustix::path::Arg + Copy) -> rustix::io::Result<()> {
    let directory = open_directory_beneath(parent, name)?;
    let flags = ioctl_getflags(&directory)?;
    if !flags.contains(IFlags::IMMUTABLE) || !is_directory_empty(&directory)? {
        return Ok(());
    }
    ioctl_setflags(&directory, flags - IFlags::IMMUTABLE)?;
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Opens a subdirectory; a missing one is created and owned by the instance's `root`.
fn ensure_subdirectory(parent: &OwnedFd, name: &str, mode: u32, owner: u32) -> rustix::io::Result<OwnedFd> {
    let made = match mkdirat(parent, name, Mode::from(mode)) {
        Err(Errno::EXIST) => false,
        done => done.map(|()| true)?,
    };
    let directory = open_directory_beneath(parent, name)?;
    if made {
        fchmod(&directory, Mode::from(mode))?;
        fchown(&directory, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))?;
    }
    Ok(directory)
}

fn is_directory_empty(directory: impl AsFd) -> rustix::io::Result<bool> {
    let is_itself = |name: &CStr| matches!(name.to_bytes(), b"." | b"..");
    for entry in Dir::read_from(directory)? {
        if !is_itself(entry?.file_name()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The namespaces of an instance, held open so that they stay the same even if its process ends.
pub(in crate::local::helper) struct MountNamespace {
    mounts: File,
    table: File,
    /// The user namespace.
    pub(in crate::local::helper) user: OwnedFd,
}

impl MountNamespace {
    /// Opens the namespaces of a process; `None` when it has ended. A reuse of its process id is detected after they
    /// were opened; a check before could miss it. The host's own namespace is refused.
    pub(in crate::local::helper) fn of_process(process: &Process) -> io::Result<Option<Self>> {
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
    pub(in crate::local::helper) fn enter_mount_namespace(&self) -> io::Result<()> {
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
