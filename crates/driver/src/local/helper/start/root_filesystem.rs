//! The root filesystem of an instance, built in a mount namespace of the helper.
//!
//! Nothing of it ever appears in the mount namespace of the host: the instance gets a copy of the helper's, and when
//! its last process ends the kernel removes all mounts. A small tmpfs at `mounts` in the instance's directory, visible
//! only in this namespace, holds the mount points and what libcontainer writes.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use libcontainer::syscall::linux::{self, MOUNT_ATTR_NODEV};
use rustix::fs::{CWD, FallocateFlags, FileType, Mode, OFlags, chmod, fallocate, makedev, mknodat, openat, statvfs};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change, move_mount, open_tree,
};
use rustix::thread::UnshareFlags;

use super::devices;
use crate::local::disk::content;
use crate::local::helper::mount_calls::{self, mount_overlay, set_mount_attributes};
use crate::local::helper::order::{Disk, Start};
use crate::local::helper::volumes::{self, mount_points};
use crate::local::helper::{kernel, with_context};
use crate::local::host::loop_device::FileIdentity;
use crate::local::host::{files, xfs};
use crate::local::protections::Protection;

/// The maximum size of `/run`, if half of the memory is not less.
const MAX_RUN: u64 = 256 << 20;

/// Devices that no instance has: FUSE, loop devices, tunnels. Only a test that disables the device list provides them.
const DENIED: &[(&str, (u32, u32))] = &[("fuse", (10, 229)), ("loop-control", (10, 237)), ("net/tun", (10, 200))];

/// Paths inside the helper's mount namespace.
pub(super) struct RootMounts {
    /// The root of the instance.
    pub(in crate::local::helper) root: PathBuf,
    /// What libcontainer reads and writes.
    pub(super) bundle: PathBuf,
}

/// Leaves the host's mount namespace and builds the instance's root. `ids` is its user namespace, `disk` the detached
/// mount of its disk.
pub(super) fn build_root(order: &Start, ids: &OwnedFd, disk: &OwnedFd) -> io::Result<RootMounts> {
    kernel::unshare(UnshareFlags::NEWNS)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let base = order.run.join("mounts");
    // Processes of the instance pass through here on the way to its root, so they may enter, but not list the
    // directory.
    mount("tarn", &base, "tmpfs", MountFlags::NODEV | MountFlags::NOSUID, c"mode=0711,size=4m,nr_inodes=512")?;
    // The kernel shows the paths of an overlay inside; relative ones reveal nothing of the host.
    std::env::set_current_dir(&base)?;
    for name in ["image", "usr", "disk", "root", "bundle"] {
        fs::create_dir(name)?;
    }
    mount_read_only(&order.image, "image", Some(ids))?;
    place_disk(order, disk, "disk")?;
    let mut lower = "image/root".to_owned();
    for (number, layer) in order.container.iter().flat_map(|container| &container.layers).enumerate() {
        // All options together have to fit into a page, so the names are short.
        let name = number.to_string();
        fs::create_dir(&name)?;
        mount_read_only(layer, &name, Some(ids))?;
        lower = format!("{lower}:{name}");
    }
    mount_overlay("root", &format!("lowerdir={lower},upperdir=disk/upper,workdir=disk/work"))?;
    let root = openat(CWD, "root", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    mount_points::sweep_mount_points(&root, &order.volumes);
    if order.container.is_none() {
        mount_read_only(Path::new("/usr"), "usr", Some(ids))?;
        mount_overlay("root/usr", "lowerdir=image/hide:usr,upperdir=disk/usr-upper,workdir=disk/usr-work")?;
    }
    if matches!(order.disk, Disk::Device { .. }) {
        reserve_disk_space("disk")?;
    }
    mount_read_only(&order.guest, "root/.tarn/guest", None)?;
    mount_tmpfs(order, "root/dev", "mode=0755,size=64m,nr_inodes=1024", MountFlags::NOEXEC | device_flags(order))?;
    for name in ["root/dev/shm", "root/dev/pts"] {
        fs::create_dir(name)?;
    }
    if !order.protections.have(Protection::Devices) {
        DENIED.iter().try_for_each(|(name, number)| mount_denied_device(&format!("root/dev/{name}"), *number))?;
    }
    let half = order.memory_bytes / 2;
    mount_tmpfs(order, "root/dev/shm", &format!("mode=1777,size={half}"), MountFlags::NODEV)?;
    mount_tmpfs(order, "root/run", &format!("mode=0755,size={}", half.min(MAX_RUN)), MountFlags::NODEV)?;
    devices::apply_device_edits(order, ids)?;
    let (root, bundle) = (base.join("root"), base.join("bundle"));
    Ok(RootMounts { root, bundle })
}

/// Mounts `from` read-only at `to`, without mounts below it; with the ids of a user namespace, if given.
fn mount_read_only(from: &Path, to: &str, ids: Option<&OwnedFd>) -> io::Result<()> {
    let tree = open_tree(CWD, from, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    set_mount_attributes(&tree, linux::MOUNT_ATTR_NODEV | linux::MOUNT_ATTR_RDONLY, ids)
        .map_err(with_context(format!("{} cannot be mapped", from.display())))?;
    move_mount(&tree, "", CWD, to, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

/// Creates a device with access for all, for a test that disables the device list.
fn mount_denied_device(at: &str, (major, minor): (u32, u32)) -> io::Result<()> {
    fs::create_dir_all("device")?;
    mount("tarn", "device", "tmpfs", MountFlags::NOSUID, c"mode=0755,size=4k")?;
    let all_users = Mode::from(0o666);
    mknodat(CWD, "device/node", FileType::CharacterDevice, all_users, makedev(major, minor))?;
    chmod("device/node", all_users)?;
    if let Some(directory) = Path::new(at).parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(at, "")?;
    let tree = open_tree(CWD, "device/node", OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    move_mount(&tree, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

/// Mounts a tmpfs owned by the instance. libcontainer takes far longer for this.
fn mount_tmpfs(order: &Start, at: &str, options: &str, flags: MountFlags) -> io::Result<()> {
    let options = CString::new(format!("{options},uid={0},gid={0}", order.id_base))?;
    mount("tmpfs", at, "tmpfs", flags | MountFlags::NOSUID, options.as_c_str())?;
    Ok(())
}

/// An instance gets its devices by bind mounts. Only in a test without a user namespace they are created, and must be
/// usable.
fn device_flags(order: &Start) -> MountFlags {
    if order.protections.have(Protection::UserNamespace) { MountFlags::NODEV } else { MountFlags::empty() }
}

/// A file that reserves space on the disk, outside of the layers, where the instance does not see it.
const RESERVED_FILE: &str = "room";

/// The maximum reserved space.
const MAX_RESERVED: u64 = 16 << 20;

/// Creates a detached mount of the disk.
pub(super) fn mount_disk(order: &Start) -> io::Result<OwnedFd> {
    match &order.disk {
        Disk::Directory(path) => {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let tree = open_tree(CWD, path, flags)?;
            mount_calls::set_mount_attributes(&tree, MOUNT_ATTR_NODEV, None)?;
            Ok(tree)
        }
        Disk::Device { device, number, file } => mount_device(device, *number, *file),
    }
}

/// Moves the mount to its place, and creates what a new disk needs. The reserved space is released, so that a full disk
/// has a little space.
pub(super) fn place_disk(order: &Start, tree: &OwnedFd, at: &str) -> io::Result<()> {
    move_mount(tree, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    let at = Path::new(at);
    files::ignore_missing(fs::remove_file(at.join(RESERVED_FILE)))?;
    content::create_layers(at, &order.hostname, order.id_base)
}

/// Reserves space for the next start: without any the kernel would mount the layers of a full disk read-only, and the
/// tenant could not free space. Half of the free space stays available for the guest.
pub(super) fn reserve_disk_space(at: &str) -> io::Result<()> {
    let free = statvfs(at)?;
    let length = (free.f_bavail.saturating_mul(free.f_frsize) / 2).min(MAX_RESERVED);
    let file = File::create(Path::new(at).join(RESERVED_FILE))?;
    match fallocate(&file, FallocateFlags::empty(), 0, length) {
        // The free space may be less than was counted, and the filesystem of a plain directory may not support this.
        Ok(()) | Err(Errno::NOSPC | Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn mount_device(device: &Path, number: u64, file: FileIdentity) -> io::Result<OwnedFd> {
    let tree = xfs::mount_copy_detached(device).map_err(|error| {
        let damaged = xfs::is_damage(&error) || xfs::is_io_failure(&error);
        let words = if damaged { "the disk of the instance is damaged" } else { "the disk could not be mounted" };
        with_context(words)(error)
    })?;
    volumes::check_device(&tree, device, number, file)?;
    Ok(tree)
}
