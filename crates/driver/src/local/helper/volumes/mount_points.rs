//! The mount points of volumes: empty directories `/mnt/<storage id>` on an instance's own disk.
//!
//! Whoever is `root` inside may have put anything there, and may change it at any moment. So every step goes from an open
//! directory to the next, through no link and into no other mount. A mount point is immutable: while nothing is mounted there,
//! nobody can write there, and by that it is also known again.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, Dir, Gid, IFlags, Mode, OFlags, ResolveFlags, Uid, fchmod, fchown, ioctl_getflags, ioctl_setflags,
    mkdirat, openat2, unlinkat,
};
use rustix::io::Errno;
use tarn_model::ids::VolumeId;

use crate::local::helper::Failure;
use crate::local::helper::order::{Refused, Why};
use crate::local::trees::enter;

/// The directory of all mount points, in the root of an instance.
const ALL: &str = "mnt";

/// As many names are looked at for mount points that nobody needs any more.
const MAX_NAMES: usize = 10_000;

/// A mount point, held open.
pub(super) struct MountPoint {
    parent: OwnedFd,
    name: String,
    /// The directory itself.
    pub(in crate::local::helper) directory: OwnedFd,
}

impl MountPoint {
    /// Makes the mount point of a volume below the root of an instance, or takes the one that is there.
    pub(in crate::local::helper) fn make(root: &OwnedFd, volume: &VolumeId, owner: u32) -> Result<Self, Failure> {
        let taken = |what: String| Failure::Refused(Refused { volume: volume.clone(), why: Why::Taken { what } });
        let explain = |error: Errno, path: String| match error {
            Errno::LOOP | Errno::NOTDIR | Errno::XDEV => {
                taken(format!("{path} is not a plain directory there; move it away"))
            }
            other => Failure::Failed(io::Error::from(other)),
        };
        let parent = ensure(root, ALL, 0o755, owner).map_err(|error| explain(error, format!("/{ALL}")))?;
        let path = format!("/{ALL}/{volume}");
        let directory = ensure(&parent, volume.as_str(), 0o555, owner).map_err(|error| explain(error, path.clone()))?;
        if !is_empty(&directory)? {
            return Err(taken(format!("{path} is not empty there; move away what is in it")));
        }
        let flags = ioctl_getflags(&directory)?;
        ioctl_setflags(&directory, flags | IFlags::IMMUTABLE)?;
        // Somebody may have been faster than the flag.
        if !is_empty(&directory)? {
            ioctl_setflags(&directory, flags - IFlags::IMMUTABLE)?;
            return Err(taken(format!("{path} is not empty there; move away what is in it")));
        }
        Ok(MountPoint { parent, name: volume.to_string(), directory })
    }

    /// Removes it again, if it is still there.
    pub(super) fn remove(self) {
        // One that stays harms nobody: the next start of the instance tries again.
        let _stays = remove(&self.parent, self.name.as_str());
    }
}

/// What is at the place of a volume below the root of an instance now, in whatever mount.
pub(in crate::local::helper) fn look(root: &OwnedFd, volume: &VolumeId) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    openat2(root, format!("{ALL}/{volume}"), flags, Mode::empty(), resolve)
}

/// Removes the mount points of all volumes but these. Only what is immutable and empty is one.
pub(in crate::local::helper) fn sweep(root: &OwnedFd, keep: &[VolumeId]) {
    let Ok(parent) = enter(root, ALL) else { return };
    let Ok(entries) = Dir::read_from(&parent) else { return };
    for entry in entries.take(MAX_NAMES).flatten() {
        let name = entry.file_name();
        let volume = name.to_str().ok().and_then(|name| name.parse::<VolumeId>().ok());
        if volume.is_some_and(|volume| !keep.contains(&volume)) {
            // One that stays harms nobody.
            let _stays = remove(&parent, name);
        }
    }
}

/// Removes a mount point; what is none is left alone.
pub(super) fn remove(parent: &OwnedFd, name: impl rustix::path::Arg + Copy) -> rustix::io::Result<()> {
    let directory = enter(parent, name)?;
    let flags = ioctl_getflags(&directory)?;
    if !flags.contains(IFlags::IMMUTABLE) || !is_empty(&directory)? {
        return Ok(());
    }
    ioctl_setflags(&directory, flags - IFlags::IMMUTABLE)?;
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Opens a directory in another one, made if it is not there, of which the instance's `root` is the owner then.
fn ensure(parent: &OwnedFd, name: &str, mode: u32, owner: u32) -> rustix::io::Result<OwnedFd> {
    let made = match mkdirat(parent, name, Mode::from(mode)) {
        Err(Errno::EXIST) => false,
        done => done.map(|()| true)?,
    };
    let directory = enter(parent, name)?;
    if made {
        fchmod(&directory, Mode::from(mode))?;
        fchown(&directory, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))?;
    }
    Ok(directory)
}

fn is_empty(directory: impl AsFd) -> rustix::io::Result<bool> {
    let is_itself = |name: &CStr| matches!(name.to_bytes(), b"." | b"..");
    for entry in Dir::read_from(directory)? {
        if !is_itself(entry?.file_name()) {
            return Ok(false);
        }
    }
    Ok(true)
}
