//! Tries what every start needs of the kernel: id-mapped mounts on the filesystem of the data, below an overlay. It
//! runs in namespaces that end with the helper, and writes nothing to that filesystem.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use libcontainer::syscall::linux;
use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change, move_mount, open_tree,
};
use rustix::thread::UnshareFlags;

use super::namespaces::Namespaces;
use super::order::Probe;
use super::{kernel, with_context};
use crate::local::helper::mount_calls;
use crate::local::host::id_ranges;

/// A directory that every host has; the trial mounts over it in its own namespace.
const PLACE: &str = "/sys";

/// Carries out the order.
pub(super) fn probe_mounts(order: &Probe) -> io::Result<()> {
    let id_base = id_ranges::choose_id_range("probe", &BTreeSet::new())
        .ok_or_else(|| io::Error::other("there are no user ids"))?;
    let namespaces = Namespaces::create(id_base).map_err(with_context("namespaces cannot be created"))?;
    kernel::unshare(UnshareFlags::NEWNS).map_err(with_context("a mount namespace cannot be created"))?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let tree = open_tree(CWD, &order.directory, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    mount_calls::set_mount_attributes(
        &tree,
        linux::MOUNT_ATTR_NODEV | linux::MOUNT_ATTR_RDONLY,
        Some(&namespaces.user),
    )
    .map_err(with_context("its ids cannot be mapped"))?;
    mount("tarn", PLACE, "tmpfs", MountFlags::NODEV | MountFlags::NOSUID, c"size=1m,nr_inodes=64")?;
    std::env::set_current_dir(PLACE)?;
    for name in ["lower", "upper", "work", "root"] {
        fs::create_dir(name)?;
    }
    move_mount(&tree, "", CWD, "lower", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    mount_calls::mount_overlay("root", "lowerdir=lower,upperdir=upper,workdir=work")?;
    fs::read_dir("root").map(drop)
}
