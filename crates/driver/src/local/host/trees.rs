//! Removing whole trees, never further than the filesystem they are in.
//!
//! What an instance leaves on its disk is its own to shape: links, odd names, a depth without end. And a careless removal
//! through a mount would be the end of somebody else's data. So directories are opened by the kernel's rule that a lookup must
//! not follow links nor cross mounts, everything is removed relative to an open directory, and what lies too deep is first
//! moved up.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, openat, openat2, renameat_with, unlinkat,
};
use rustix::io::Errno;

/// How deep the removal goes before it moves what is deeper to the top.
const MAX_DEPTH: u32 = 64;

/// Removes a file or a tree; what is not there is removed already.
pub(in crate::local) fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("what has no name cannot be removed"));
    };
    let name = CString::new(name.as_bytes())?;
    match openat(CWD, parent, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => Ok(()),
        parent => remove_tree_in(parent?, &name),
    }
}

/// Removes a file or a tree in an open directory.
pub(in crate::local) fn remove_tree_in(parent: impl AsFd, name: &CStr) -> io::Result<()> {
    match unlinkat(&parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let top = open_directory_beneath(&parent, name)?;
    let mut moved = 0;
    while !clear_directory(top.as_fd(), top.as_fd(), 0, &mut moved)? {}
    unlinkat(&parent, name, AtFlags::REMOVEDIR)?;
    Ok(())
}

/// Opens a directory in another one: not through a link, not into another mount.
pub(in crate::local) fn open_directory_beneath(
    parent: impl AsFd,
    name: impl rustix::path::Arg,
) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat2(
        parent,
        name,
        flags,
        Mode::empty(),
        ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH,
    )
}

/// Removes what is in a directory. Says whether it is empty now: it is not when something was moved to the top, which is
/// for the next turn.
fn clear_directory(
    top: impl AsFd + Copy,
    directory: impl AsFd + Copy,
    depth: u32,
    moved: &mut u64,
) -> io::Result<bool> {
    let mut empty = true;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if entry.file_type() != FileType::Directory {
            match unlinkat(directory, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => continue,
                // The filesystem did not say that it is a directory.
                Err(Errno::ISDIR | Errno::PERM) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if depth == MAX_DEPTH {
            move_to_top(top, directory, name, moved)?;
            empty = false;
            continue;
        }
        let below = open_directory_beneath(directory, name)?;
        // What was moved up went to the top and not into this directory, which can be removed all the same.
        empty &= clear_directory(top, below.as_fd(), depth + 1, moved)?;
        unlinkat(directory, name, AtFlags::REMOVEDIR)?;
    }
    Ok(empty)
}

fn move_to_top(top: impl AsFd, directory: impl AsFd, name: &CStr, moved: &mut u64) -> io::Result<()> {
    loop {
        *moved += 1;
        let free = format!(".removed-{moved}");
        match renameat_with(&directory, name, &top, free, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            other => return Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::fs::mkdirat;

    use super::*;

    #[test]
    fn removes_odd_and_closed_things_but_not_what_links_point_to() {
        let directory = tempfile::tempdir().unwrap();
        let (tree, other) = (directory.path().join("tree"), directory.path().join("other"));
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(other.join("kept"), "").unwrap();
        fs::write(tree.join("a/b/\u{1}\n\\"), "").unwrap();
        symlink(&other, tree.join("a/link")).unwrap();
        fs::set_permissions(tree.join("a/b"), fs::Permissions::from_mode(0o700)).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists() && other.join("kept").exists());
        remove_tree(&tree).unwrap();
        symlink(&other, &tree).unwrap();
        remove_tree(&tree).unwrap();
        assert!(
            fs::symlink_metadata(&tree).is_err() && other.join("kept").exists(),
            "a link is removed, not its target"
        );
    }

    #[test]
    fn what_is_mounted_in_a_tree_keeps_it_from_being_removed() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: mounts need root");
            return;
        }
        struct Mounted(std::path::PathBuf);
        impl Drop for Mounted {
            fn drop(&mut self) {
                rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH).unwrap();
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        let other = tree.join("a/other");
        fs::create_dir_all(&other).unwrap();
        rustix::mount::mount("test", &other, "tmpfs", rustix::mount::MountFlags::empty(), c"size=1m").unwrap();
        let mounted = Mounted(other.clone());
        fs::write(other.join("kept"), "data of somebody else").unwrap();
        assert!(remove_tree(&tree).is_err() && remove_tree(&other).is_err());
        assert_eq!(fs::read_to_string(other.join("kept")).unwrap(), "data of somebody else");
        drop(mounted);
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn removes_what_is_deeper_than_a_path_may_be_long() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let mut at = open_directory_beneath(fs::File::open(directory.path()).unwrap(), c"tree").unwrap();
        for _ in 0..5_000 {
            mkdirat(&at, "deep", Mode::RWXU).unwrap();
            at = open_directory_beneath(&at, c"deep").unwrap();
        }
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
    }
}
