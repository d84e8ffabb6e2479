//! What an instance needs to use its GPUs, put into its root before it exists: device nodes, files of the host, links and
//! environment variables.
//!
//! The root may be of an image that somebody filled, so every path in it is resolved within it. The nodes are made anew in a
//! filesystem of their own, because those of the host may belong to whom they like; each of them is mounted at its place, and
//! nothing else of that filesystem can be reached from inside.

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

/// The variables for all programs of the instance, which the guest reads.
const ENVIRONMENT: &str = "root/run/tarn/environment";

/// Makes all of it below `root`, which is in the working directory and holds the instance's own `/dev` and `/run` already.
pub(in crate::local::helper) fn apply(order: &Start, ids: &OwnedFd) -> io::Result<()> {
    let edits = &order.devices;
    if *edits == Edits::default() {
        return Ok(());
    }
    make_nodes(order)?;
    let root = openat(CWD, "root", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut shown = false;
    for mount in &edits.mounts {
        shown |= show(&root, mount, ids, order.id_base).map_err(|error| {
            io::Error::new(error.kind(), format!("{} cannot be shown: {error}", mount.from.display()))
        })?;
    }
    for (target, path) in &edits.links {
        link(&root, target, path, order.id_base)?;
    }
    // Where everything is that the host has, its loader knows where to look.
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
        make_node(order, number, node)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", node.path.display())))?;
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
    // `/dev` was made a moment ago and nobody else has been there.
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

/// Shows something of the host, read-only; `false` if the instance has the very same already, as in an image of the host.
fn show(root: &OwnedFd, wanted: &Mount, ids: &OwnedFd, owner: u32) -> io::Result<bool> {
    let found = fs::metadata(&wanted.from)?;
    if found.is_file() && is_same(root, &wanted.to, &found) {
        return Ok(false);
    }
    let place = ensure(root, &wanted.to, found.is_dir(), owner)?;
    let tree = |ids: Option<&OwnedFd>| -> io::Result<OwnedFd> {
        let tree = open_tree(CWD, &wanted.from, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
        let attributes = linux::MOUNT_ATTR_RDONLY | linux::MOUNT_ATTR_NODEV | linux::MOUNT_ATTR_NOSUID;
        mount_calls::set_mount_attributes(&tree, attributes, ids)?;
        Ok(tree)
    };
    // Not every filesystem can show other owners. What everybody may read, as libraries, is readable also then.
    let tree = tree(Some(ids)).or_else(|_| tree(None))?;
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&tree, "", &place, "", both)?;
    Ok(true)
}

/// Whether a file in the instance is a file of the host, as far as can be seen through the layers in between.
fn is_same(root: &OwnedFd, path: &Path, host: &fs::Metadata) -> bool {
    let Ok(there) = within(root, path, OFlags::PATH) else { return false };
    let mask = StatxFlags::TYPE | StatxFlags::SIZE | StatxFlags::MTIME;
    statx(&there, "", AtFlags::EMPTY_PATH, mask).is_ok_and(|there| {
        let modified = (there.stx_mtime.tv_sec, i64::from(there.stx_mtime.tv_nsec));
        there.stx_size == host.size() && modified == (host.mtime(), host.mtime_nsec())
    })
}

/// Opens what is at a path in the instance, or makes an empty file or directory there.
fn ensure(root: &OwnedFd, path: &Path, is_directory: bool, owner: u32) -> io::Result<OwnedFd> {
    let parent = parent(root, path, owner)?;
    let name = path.file_name().ok_or_else(|| io::Error::other("a path without a name"))?;
    match within(root, path, OFlags::PATH) {
        Err(Errno::NOENT) => {}
        found => return Ok(found?),
    }
    match is_directory {
        true => mkdirat(&parent, name, Mode::from_raw_mode(0o755))?,
        false => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
            drop(openat(&parent, name, flags, Mode::from_raw_mode(0o644))?);
        }
    }
    own(&parent, name, owner)?;
    Ok(within(root, path, OFlags::PATH)?)
}

/// Opens the directory of a path in the instance, made if it is not there.
fn parent(root: &OwnedFd, path: &Path, owner: u32) -> io::Result<OwnedFd> {
    let mut at = within(root, Path::new("/"), OFlags::PATH | OFlags::DIRECTORY)?;
    let mut so_far = Path::new("/").to_owned();
    for part in path.parent().into_iter().flat_map(Path::components) {
        let Component::Normal(name) = part else { continue };
        so_far.push(name);
        at = match within(root, &so_far, OFlags::PATH | OFlags::DIRECTORY) {
            Err(Errno::NOENT) => {
                mkdirat(&at, name, Mode::from_raw_mode(0o755))?;
                own(&at, name, owner)?;
                within(root, &so_far, OFlags::PATH | OFlags::DIRECTORY)?
            }
            found => found?,
        };
    }
    Ok(at)
}

/// Makes a link, unless something has its place.
fn link(root: &OwnedFd, target: &str, path: &Path, owner: u32) -> io::Result<()> {
    let parent = parent(root, path, owner)?;
    let name = path.file_name().ok_or_else(|| io::Error::other("a link without a name"))?;
    match symlinkat(target, &parent, name) {
        Ok(()) => own(&parent, name, owner),
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn own(parent: &OwnedFd, name: &std::ffi::OsStr, owner: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(owner), Gid::from_raw(owner));
    Ok(chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Opens a path as the instance itself would: links lead nowhere but within its root.
fn within(root: &OwnedFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
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
