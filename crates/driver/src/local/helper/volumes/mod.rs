//! Mounts volumes in an existing instance, and unmounts them.
//!
//! The mount is created detached, with the ids of the instance, and then moved to its place inside. The kernel's mount
//! table is read before and after.

pub(in crate::local::helper) mod mount_points;

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

use self::mount_points::MountNamespace;
use self::mount_points::MountPoint;
use super::Failure;
use super::order::{Mount, Refused, Unmount, Volume, Why};
use crate::local::helper::mount_calls;
use crate::local::host::loop_device::{FileIdentity, LoopDevice};
use crate::local::host::xfs;

/// How often the tenant may move the mount while it is being unmounted.
const MAX_RACES: u32 = 100;

/// Ensures the volumes are mounted in the instance.
pub(super) fn mount_volumes(order: &Mount) -> Result<(), Failure> {
    let Some(first) = order.volumes.first() else { return Ok(()) };
    let inside = MountNamespace::of_process(&order.process)?;
    let mut inside = inside.ok_or_else(|| volume_refused(&first.id, Why::Ended))?;
    let mut prepared = Vec::new();
    for volume in &order.volumes {
        if inside.find_mount(volume.number)?.is_none() {
            prepared.push((volume, prepare_volume_mount(volume, &inside.user)?));
        }
    }
    inside.enter_mount_namespace()?;
    let root = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for (volume, tree) in prepared {
        let placed = place_volume_mount(&mut inside, &root, volume, tree, order.id_base);
        // A concurrent order may have mounted it first.
        if let (Err(failure), None) = (placed, inside.find_mount(volume.number)?) {
            return Err(failure);
        }
    }
    Ok(())
}

/// Ensures the volume is not mounted in the instance; an instance that has ended has no mounts.
pub(super) fn unmount_volume(order: &Unmount) -> Result<(), Failure> {
    let Some(mut inside) = MountNamespace::of_process(&order.process)? else { return Ok(()) };
    inside.enter_mount_namespace()?;
    take_down_mount(&mut inside, &order.id, order.number)
}

/// Creates a detached mount of a volume, with the ids of a user namespace.
fn prepare_volume_mount(volume: &Volume, ids: &OwnedFd) -> Result<OwnedFd, Failure> {
    let tree = match xfs::mount_detached(&volume.device) {
        Err(error) if xfs::is_damage(&error) => {
            return Err(volume_refused(&volume.id, Why::Damaged { reason: error.to_string() }));
        }
        Err(error) if xfs::is_io_failure(&error) => {
            return Err(volume_refused(&volume.id, Why::Unreadable { reason: error.to_string() }));
        }
        tree => tree?,
    };
    check_device(&tree, &volume.device, volume.number, volume.file)?;
    mount_calls::set_mount_attributes(&tree, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID, Some(ids))?;
    Ok(tree)
}

/// Refuses a mount of a device with another file. From here on the mount keeps the device. Before, an engine that died
/// may have released it, and another program, perhaps another engine, may have got the same number for another file.
pub(super) fn check_device(tree: &OwnedFd, device: &Path, number: u64, file: FileIdentity) -> io::Result<()> {
    let is_the_device = is_root_of(&stat_mount(tree, OsStr::new(""))?, number);
    if !is_the_device || LoopDevice::inspect(device)?.file != file {
        return Err(io::Error::other(format!("{} is another device", device.display())));
    }
    Ok(())
}

/// Moves a mount to its place, and verifies that it is there.
fn place_volume_mount(
    inside: &mut MountNamespace,
    root: &OwnedFd,
    volume: &Volume,
    tree: OwnedFd,
    owner: u32,
) -> Result<(), Failure> {
    let point = MountPoint::prepare(root, &volume.id, owner)?;
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    if let Err(error) = move_mount(&tree, "", &point.directory, "", both) {
        point.remove();
        return Err(error.into());
    }
    // While these are open, the volume could not be unmounted again.
    drop((tree, point));
    let found =
        mount_points::open_volume_directory(root, &volume.id).and_then(|found| stat_mount(&found, OsStr::new("")));
    if found.is_ok_and(|found| is_root_of(&found, volume.number)) {
        return Ok(());
    }
    take_down_mount(inside, &volume.id, volume.number)?;
    let what = "its directory was moved away while it was mounted".into();
    Err(volume_refused(&volume.id, Why::Taken { what }))
}

/// Unmounts a volume wherever its mount point has been moved to, as often as it is mounted.
fn take_down_mount(inside: &mut MountNamespace, volume: &VolumeId, number: u64) -> Result<(), Failure> {
    for _ in 0..MAX_RACES {
        let Some(place) = inside.find_mount(number)? else { return Ok(()) };
        // A path that no longer exists was moved away just now.
        let Some((parent, name)) = open_parent_of(&place)? else { continue };
        match stat_mount(&parent, name) {
            Ok(found) if is_root_of(&found, number) => {}
            Ok(_) | Err(Errno::NOENT) => continue,
            Err(error) => return Err(error.into()),
        }
        fchdir(&parent)?;
        match unmount_path(name, UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::BUSY) => return Err(volume_refused(volume, Why::Busy)),
            Err(error) => return Err(error.into()),
        }
        // A leftover mount point is harmless: the next start of the instance removes it.
        let _stays = mount_points::remove_mount_point(&parent, name);
    }
    Err(io::Error::other("the mount keeps being moved").into())
}

/// Opens the parent directory of a path without following links or entering other mounts; `None` when that is
/// impossible. It goes one step at a time, because the path may be longer than the kernel accepts.
fn open_parent_of(place: &Path) -> Result<Option<(OwnedFd, &OsStr)>, Failure> {
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

fn stat_mount(directory: &OwnedFd, name: &OsStr) -> rustix::io::Result<Statx> {
    statx(directory, name, AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE)
}

fn is_root_of(found: &Statx, number: u64) -> bool {
    found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
        && makedev(found.stx_dev_major, found.stx_dev_minor) == number
}

fn volume_refused(volume: &VolumeId, why: Why) -> Failure {
    Failure::Refused(Refused { volume: volume.clone(), why })
}
