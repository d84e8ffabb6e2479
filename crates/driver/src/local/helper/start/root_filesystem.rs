//! The root filesystem of an instance, put together in a mount namespace of the helper's own.
//!
//! Nothing of it ever appears in the mount namespace of the machine: the instance takes a copy of the helper's, and when its
//! last process ends the kernel takes everything apart. Below `mounts` in the instance's directory lies a small filesystem in
//! memory that only this namespace sees; it holds the mount points and what libcontainer writes.

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
use crate::local::protections::Protection;

/// As much as may lie in `/run`, if half of the memory is not less.
const MAX_RUN: u64 = 256 << 20;

/// Devices that no instance has: filesystems in programs, loop devices, tunnels. Only a test that leaves the list of devices out
/// gives them.
const DENIED: &[(&str, (u32, u32))] = &[("fuse", (10, 229)), ("loop-control", (10, 237)), ("net/tun", (10, 200))];

/// Where things are inside the helper's mount namespace.
pub(in crate::local::helper) struct Mounts {
    /// The instance's root.
    pub(in crate::local::helper) root: PathBuf,
    /// What libcontainer reads and writes.
    pub(super) bundle: PathBuf,
}

/// Leaves the machine's mount namespace and builds the instance's root. `ids` is the user namespace whose ids it has,
/// `disk` the instance's own disk, which is mounted nowhere yet.
pub(super) fn build(order: &Start, ids: &OwnedFd, disk: &OwnedFd) -> io::Result<Mounts> {
    kernel::unshare(UnshareFlags::NEWNS)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let base = order.run.join("mounts");
    // A process of the instance passes through here on the way to its root, so others may enter, but not look around.
    mount("tarn", &base, "tmpfs", MountFlags::NODEV | MountFlags::NOSUID, c"mode=0711,size=4m,nr_inodes=512")?;
    // The kernel shows the paths of an overlay to whoever asks inside: relative ones tell nothing of the machine.
    std::env::set_current_dir(&base)?;
    for name in ["image", "usr", "disk", "root", "bundle"] {
        fs::create_dir(name)?;
    }
    attach(&order.image, "image", Some(ids))?;
    disk::place(order, disk, "disk")?;
    let mut lower = "image/root".to_owned();
    for (number, layer) in order.container.iter().flat_map(|container| &container.layers).enumerate() {
        // All options together have to fit into a page, so the names are short.
        let name = number.to_string();
        fs::create_dir(&name)?;
        attach(layer, &name, Some(ids))?;
        lower = format!("{lower}:{name}");
    }
    mount_overlay("root", &format!("lowerdir={lower},upperdir=disk/upper,workdir=disk/work"))?;
    let root = openat(CWD, "root", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    mount_points::sweep(&root, &order.volumes);
    if order.container.is_none() {
        attach(Path::new("/usr"), "usr", Some(ids))?;
        mount_overlay("root/usr", "lowerdir=image/hide:usr,upperdir=disk/usr-upper,workdir=disk/usr-work")?;
    }
    if matches!(order.disk, Disk::Device { .. }) {
        disk::set_room_aside("disk")?;
    }
    attach(&order.guest, "root/.tarn/guest", None)?;
    memory(order, "root/dev", "mode=0755,size=64m,nr_inodes=1024", MountFlags::NOEXEC | no_devices(order))?;
    for name in ["root/dev/shm", "root/dev/pts"] {
        fs::create_dir(name)?;
    }
    if !order.protections.have(Protection::Devices) {
        DENIED.iter().try_for_each(|(name, number)| show_device(&format!("root/dev/{name}"), *number))?;
    }
    let half = order.memory_bytes / 2;
    memory(order, "root/dev/shm", &format!("mode=1777,size={half}"), MountFlags::NODEV)?;
    memory(order, "root/run", &format!("mode=0755,size={}", half.min(MAX_RUN)), MountFlags::NODEV)?;
    devices::apply(order, ids)?;
    let (root, bundle) = (base.join("root"), base.join("bundle"));
    Ok(Mounts { root, bundle })
}

/// Shows `from`, without what is mounted below it, read-only at `to`; with the ids of a user namespace, if one is given.
fn attach(from: &Path, to: &str, ids: Option<&OwnedFd>) -> io::Result<()> {
    let tree = open_tree(CWD, from, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    set_mount_attributes(&tree, linux::MOUNT_ATTR_NODEV | linux::MOUNT_ATTR_RDONLY, ids)
        .map_err(|error| io::Error::other(format!("{} cannot be mapped: {error}", from.display())))?;
    move_mount(&tree, "", CWD, to, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

/// Makes a device that everybody may open, where a test has left the list of devices out.
fn show_device(at: &str, (major, minor): (u32, u32)) -> io::Result<()> {
    fs::create_dir_all("device")?;
    mount("tarn", "device", "tmpfs", MountFlags::NOSUID, c"mode=0755,size=4k")?;
    let everybody = Mode::from(0o666);
    mknodat(CWD, "device/node", FileType::CharacterDevice, everybody, makedev(major, minor))?;
    chmod("device/node", everybody)?;
    if let Some(directory) = Path::new(at).parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(at, "")?;
    let tree = open_tree(CWD, "device/node", OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    move_mount(&tree, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

/// Mounts a filesystem in memory that is the instance's. Done here and not by libcontainer, which takes far longer for it.
fn memory(order: &Start, at: &str, options: &str, flags: MountFlags) -> io::Result<()> {
    let options = CString::new(format!("{options},uid={0},gid={0}", order.id_base))?;
    mount("tmpfs", at, "tmpfs", flags | MountFlags::NOSUID, options.as_c_str())?;
    Ok(())
}

/// An instance is shown the devices that it has. Only where a test leaves its own ids out they are made, and then can be opened.
fn no_devices(order: &Start) -> MountFlags {
    match order.protections.have(Protection::UserNamespace) {
        true => MountFlags::NODEV,
        false => MountFlags::empty(),
    }
}
