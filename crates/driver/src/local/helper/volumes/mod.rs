//! Mounting volumes in an instance that exists, and unmounting them.
//!
//! The mount is made here, where nobody sees it, with the ids of the instance, and is then moved to its place inside. What
//! is mounted is asked of the kernel before and after.

mod mount_namespace;
pub(super) mod mount_points;

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use libcontainer::syscall::linux::{MOUNT_ATTR_NODEV, MOUNT_ATTR_NOSUID};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx, StatxAttributes, StatxFlags, makedev, openat, openat2, statx,
};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, UnmountFlags, move_mount, unmount as unmount_path};
use rustix::process::fchdir;
use tarn_model::ids::VolumeId;

use self::mount_namespace::Inside;
use self::mount_points::MountPoint;
use super::Failure;
use super::order::{Mount, Refused, Unmount, Volume, Why};
use crate::local::filesystems;
use crate::local::helper::mount_calls;
use crate::local::volumes::{Device, Identity};

/// So often whoever is inside may move the mount while it is being unmounted.
const RACES: u32 = 100;

/// Makes that the instance has the volumes.
pub(super) fn mount(order: &Mount) -> Result<(), Failure> {
    let Some(first) = order.volumes.first() else { return Ok(()) };
    let inside = Inside::of(&order.process)?;
    let mut inside = inside.ok_or_else(|| refused(&first.id, Why::Ended))?;
    let mut prepared = Vec::new();
    for volume in &order.volumes {
        if inside.find(volume.number)?.is_none() {
            prepared.push((volume, prepare(volume, &inside.user)?));
        }
    }
    inside.enter()?;
    let root = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for (volume, tree) in prepared {
        let placed = place(&mut inside, &root, volume, tree, order.id_base);
        // Whoever else was ordered to do the same may have been faster.
        if let (Err(failure), None) = (placed, inside.find(volume.number)?) {
            return Err(failure);
        }
    }
    Ok(())
}

/// Makes that the instance does not have the volume; one that has ended has none.
pub(super) fn unmount(order: &Unmount) -> Result<(), Failure> {
    let Some(mut inside) = Inside::of(&order.process)? else { return Ok(()) };
    inside.enter()?;
    take_down(&mut inside, &order.id, order.number)
}

/// Mounts a volume where nobody sees it, with the ids of a user namespace.
fn prepare(volume: &Volume, ids: &OwnedFd) -> Result<OwnedFd, Failure> {
    let tree = match filesystems::mount(&volume.device) {
        Err(error) if filesystems::is_damage(&error) => {
            return Err(refused(&volume.id, Why::Damaged { reason: error.to_string() }));
        }
        Err(error) if filesystems::is_failure(&error) => {
            return Err(refused(&volume.id, Why::Unreadable { reason: error.to_string() }));
        }
        tree => tree?,
    };
    check_device(&tree, &volume.device, volume.number, volume.file)?;
    mount_calls::set_mount_attributes(&tree, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID, Some(ids))?;
    Ok(tree)
}

/// Refuses a mount of another file's device. From here on the mount keeps the device. Before, an engine that died may have let
/// go of it, and then somebody else, perhaps another engine, has the same number for another file.
pub(super) fn check_device(tree: &OwnedFd, device: &Path, number: u64, file: Identity) -> io::Result<()> {
    let is_the_device = is_root_of(&look_at(tree, OsStr::new(""))?, number);
    if !is_the_device || Device::look(device)?.file != file {
        return Err(io::Error::other(format!("{} is another device", device.display())));
    }
    Ok(())
}

/// Moves a mount to its place, and looks that it is there.
fn place(inside: &mut Inside, root: &OwnedFd, volume: &Volume, tree: OwnedFd, owner: u32) -> Result<(), Failure> {
    let point = MountPoint::make(root, &volume.id, owner)?;
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    if let Err(error) = move_mount(&tree, "", &point.directory, "", both) {
        point.remove();
        return Err(error.into());
    }
    // As long as these are open, nobody could unmount it again.
    drop((tree, point));
    let found = mount_points::look(root, &volume.id).and_then(|found| look_at(&found, OsStr::new("")));
    if found.is_ok_and(|found| is_root_of(&found, volume.number)) {
        return Ok(());
    }
    take_down(inside, &volume.id, volume.number)?;
    let what = "its directory was moved away while it was mounted".into();
    Err(refused(&volume.id, Why::Taken { what }))
}

/// Unmounts a volume wherever its mount point has been moved to, as often as it is mounted.
fn take_down(inside: &mut Inside, volume: &VolumeId, number: u64) -> Result<(), Failure> {
    for _ in 0..RACES {
        let Some(place) = inside.find(number)? else { return Ok(()) };
        // What is not there any more was moved away just now.
        let Some((parent, name)) = walk(&place)? else { continue };
        match look_at(&parent, name) {
            Ok(found) if is_root_of(&found, number) => {}
            Ok(_) | Err(Errno::NOENT) => continue,
            Err(error) => return Err(error.into()),
        }
        fchdir(&parent)?;
        match unmount_path(name, UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::BUSY) => return Err(refused(volume, Why::Busy)),
            Err(error) => return Err(error.into()),
        }
        // One that stays harms nobody: the next start of the instance tries again.
        let _stays = mount_points::remove(&parent, name);
    }
    Err(io::Error::other("the mount is moved again and again").into())
}

/// Goes to a directory through no link and into no other mount; `None` when there is no such way. One step at a time, because
/// what is inside may be deeper than a path may be long.
fn walk(place: &Path) -> Result<Option<(OwnedFd, &OsStr)>, Failure> {
    let (Some(parent), Some(name)) = (place.parent(), place.file_name()) else { return Ok(None) };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let mut at = openat(CWD, "/", flags, Mode::empty())?;
    for component in parent.components() {
        let Component::Normal(component) = component else { continue };
        at = match openat2(&at, component, flags, Mode::empty(), resolve) {
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::XDEV) => return Ok(None),
            next => next?,
        };
    }
    Ok(Some((at, name)))
}

fn look_at(directory: &OwnedFd, name: &OsStr) -> rustix::io::Result<Statx> {
    statx(directory, name, AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE)
}

fn is_root_of(found: &Statx, number: u64) -> bool {
    found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
        && makedev(found.stx_dev_major, found.stx_dev_minor) == number
}

fn refused(volume: &VolumeId, why: Why) -> Failure {
    Failure::Refused(Refused { volume: volume.clone(), why })
}
