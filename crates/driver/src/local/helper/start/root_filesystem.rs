//! The root filesystem of an instance, built in a mount namespace of the helper.
//!
//! Nothing of it ever appears in the mount namespace of the host: the instance gets a copy of the helper's, and when
//! its last process ends the kernel removes all mounts. A small tmpfs at `mounts` in the instance's directory, visible
//! only in this namespace, holds the mount points and what libcontainer writes.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use libcontainer::syscall::linux;
use rustix::fs::{CWD, FileType, Mode, OFlags, chmod, makedev, mknodat, openat};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change, move_mount, open_tree,
};
use rustix::thread::UnshareFlags;

use super::{devices, disk};
use crate::local::helper::kernel;
use crate::local::helper::mount_calls::{mount_overlay, set_mount_attributes};
use crate::local::helper::order::{Disk, Start};
use crate::local::helper::volumes::mount_points;
use crate::local::helper::with_context;
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
    disk::place_disk(order, disk, "disk")?;
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
        disk::reserve_disk_space("disk")?;
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
