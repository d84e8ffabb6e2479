//! What an instance needs to use its GPUs, added to its root before it starts: device nodes, files of the host, links
//! and environment variables.
//!
//! A tenant may have chosen the contents of the root, so every path is resolved within it. The device nodes are created
//! in a separate filesystem, because those of the host may have any owner; each is mounted at its path, and nothing
//! else of that filesystem can be reached from inside.

use std::fmt::Write;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Component, Path};

use libcontainer::syscall::linux;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, StatxFlags, Uid, chmodat, chownat, makedev, mkdirat,
    mknodat, openat, openat2, statx, symlinkat,
};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags, mount, move_mount, open_tree};

use crate::gpus::cdi::{Edits, Mount, Node};
use crate::local::helper::mount_calls;
use crate::local::helper::order::Start;
use crate::local::helper::with_context;

/// The environment variables for all programs of the instance, which the guest reads.
const ENVIRONMENT: &str = "root/run/tarn/environment";

/// Applies all edits below `root` in the working directory, which already has the instance's own `/dev` and `/run`.
pub(super) fn apply_device_edits(order: &Start, ids: &OwnedFd) -> io::Result<()> {
    let edits = &order.devices;
    if *edits == Edits::default() {
        return Ok(());
    }
    make_nodes(order)?;
    let root = openat(CWD, "root", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut shown = false;
    for mount in &edits.mounts {
        shown |= mount_host_path(&root, mount, ids, order.id_base)
            .map_err(with_context(format!("{} cannot be shown", mount.from.display())))?;
    }
    for (target, path) in &edits.links {
        make_link(&root, target, path, order.id_base)?;
    }
    // If the image has all libraries of the host, its loader finds them.
    let libraries = if shown { edits.libraries.as_slice() } else { &[] };
    write_environment(order, libraries)
}

fn make_nodes(order: &Start) -> io::Result<()> {
    let nodes = &order.devices.nodes;
    if nodes.is_empty() {
        return Ok(());
    }
    fs::create_dir("devices")?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("tarn", "devices", "tmpfs", flags, c"mode=0711,size=64k,nr_inodes=4096")?;
    for (number, node) in nodes.iter().enumerate() {
        make_node(order, number, node).map_err(with_context(node.path.display()))?;
    }
    Ok(())
}

fn make_node(order: &Start, number: usize, node: &Node) -> io::Result<()> {
    let made = format!("devices/{number}");
    let mode = Mode::from_raw_mode(node.mode);
    mknodat(CWD, &made, FileType::CharacterDevice, mode, makedev(node.major, node.minor))?;
    chmodat(CWD, &made, mode, AtFlags::empty())?;
    let owner = |id: u32| order.id_base.saturating_add(id);
    chown(&made, Some(owner(node.uid)), Some(owner(node.gid)))?;
    // `/dev` was just created, and the tenant has had no access to it.
    let place = Path::new("root").join(node.path.strip_prefix("/").map_err(io::Error::other)?);
    let mut parent = Path::new("root").to_owned();
    for part in place.parent().into_iter().flat_map(Path::components).skip(1) {
        parent.push(part);
        if !parent.exists() {
            fs::create_dir(&parent)?;
            chown(&parent, Some(order.id_base), Some(order.id_base))?;
        }
    }
    fs::write(&place, "")?;
    let tree = open_tree(CWD, &made, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    move_mount(&tree, "", CWD, &place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

/// Mounts a file or directory of the host read-only; returns `false` if the instance already has the same file, as in
/// the host image.
fn mount_host_path(root: &OwnedFd, wanted: &Mount, ids: &OwnedFd, owner: u32) -> io::Result<bool> {
    let found = fs::metadata(&wanted.from)?;
    if found.is_file() && is_same_file(root, &wanted.to, &found) {
        return Ok(false);
    }
    let place = ensure_mount_target(root, &wanted.to, found.is_dir(), owner)?;
    let tree = |ids: Option<&OwnedFd>| -> io::Result<OwnedFd> {
        let tree = open_tree(CWD, &wanted.from, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
        let attributes = linux::MOUNT_ATTR_RDONLY | linux::MOUNT_ATTR_NODEV | linux::MOUNT_ATTR_NOSUID;
        mount_calls::set_mount_attributes(&tree, attributes, ids)?;
        Ok(tree)
    };
    // Not every filesystem supports id mapping. World-readable files such as libraries are readable without it.
    let tree = tree(Some(ids)).or_else(|_| tree(None))?;
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&tree, "", &place, "", both)?;
    Ok(true)
}

/// Returns whether a file in the instance is the same as on the host, judged by size and time, because layers hide the
/// inode.
fn is_same_file(root: &OwnedFd, path: &Path, host: &fs::Metadata) -> bool {
    let Ok(there) = open_in_root(root, path, OFlags::PATH) else { return false };
    let mask = StatxFlags::TYPE | StatxFlags::SIZE | StatxFlags::MTIME;
    statx(&there, "", AtFlags::EMPTY_PATH, mask).is_ok_and(|there| {
        let modified = (there.stx_mtime.tv_sec, i64::from(there.stx_mtime.tv_nsec));
        there.stx_size == host.size() && modified == (host.mtime(), host.mtime_nsec())
    })
}

/// Opens a path in the instance; a missing one is created as an empty file or directory.
fn ensure_mount_target(root: &OwnedFd, path: &Path, is_directory: bool, owner: u32) -> io::Result<OwnedFd> {
    let parent = ensure_parent(root, path, owner)?;
    let name = path.file_name().ok_or_else(|| io::Error::other("a path without a name"))?;
    match open_in_root(root, path, OFlags::PATH) {
        Err(Errno::NOENT) => {}
        found => return Ok(found?),
    }
    if is_directory {
        mkdirat(&parent, name, Mode::from_raw_mode(0o755))?
    } else {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
        drop(openat(&parent, name, flags, Mode::from_raw_mode(0o644))?);
    }
    set_owner(&parent, name, owner)?;
    Ok(open_in_root(root, path, OFlags::PATH)?)
}

/// Opens the parent directory of a path in the instance, creating missing directories.
fn ensure_parent(root: &OwnedFd, path: &Path, owner: u32) -> io::Result<OwnedFd> {
    let mut at = open_in_root(root, Path::new("/"), OFlags::PATH | OFlags::DIRECTORY)?;
    let mut so_far = Path::new("/").to_owned();
    for part in path.parent().into_iter().flat_map(Path::components) {
        let Component::Normal(name) = part else { continue };
        so_far.push(name);
        at = match open_in_root(root, &so_far, OFlags::PATH | OFlags::DIRECTORY) {
            Err(Errno::NOENT) => {
                mkdirat(&at, name, Mode::from_raw_mode(0o755))?;
                set_owner(&at, name, owner)?;
                open_in_root(root, &so_far, OFlags::PATH | OFlags::DIRECTORY)?
            }
            found => found?,
        };
    }
    Ok(at)
}

/// Creates a symbolic link, unless something exists at its path.
fn make_link(root: &OwnedFd, target: &str, path: &Path, owner: u32) -> io::Result<()> {
    let parent = ensure_parent(root, path, owner)?;
    let name = path.file_name().ok_or_else(|| io::Error::other("a link without a name"))?;
    match symlinkat(target, &parent, name) {
        Ok(()) => set_owner(&parent, name, owner),
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn set_owner(parent: &OwnedFd, name: &std::ffi::OsStr, owner: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(owner), Gid::from_raw(owner));
    Ok(chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Opens a path as the instance itself would: links cannot lead out of its root.
fn open_in_root(root: &OwnedFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

fn write_environment(order: &Start, libraries: &[std::path::PathBuf]) -> io::Result<()> {
    let mut text = String::new();
    let folders: Vec<_> = libraries.iter().map(|folder| folder.display().to_string()).collect();
    let own = order.devices.env.iter().cloned();
    let loader = (!folders.is_empty()).then(|| ("LD_LIBRARY_PATH".to_owned(), folders.join(":")));
    for (name, value) in own.chain(loader) {
        writeln!(text, "{name}={value}").map_err(io::Error::other)?;
    }
    if text.is_empty() {
        return Ok(());
    }
    fs::create_dir("root/run/tarn")?;
    fs::write(ENVIRONMENT, text)?;
    for path in ["root/run/tarn", ENVIRONMENT] {
        chown(path, Some(order.id_base), Some(order.id_base))?;
    }
    Ok(())
}
