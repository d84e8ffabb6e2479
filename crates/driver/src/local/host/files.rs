//! Files that must be complete and on disk when a function returns, and the removal of whole trees.
//!
//! A removal does not leave its filesystem. The tenant controls what is on the disk of an instance: links, odd names,
//! unbounded depth. And a removal that crosses a mount would destroy other data. So directories are opened with the
//! kernel's flags against following links and crossing mounts, everything is removed relative to an open directory, and
//! what lies too deep is first moved to the top.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, openat, openat2, renameat_with, unlinkat,
};
use rustix::io::Errno;
use tarn_base::files::replace_file;

/// How deep the removal descends before it moves deeper directories to the top.
const MAX_DEPTH: u32 = 64;

/// Removes a file or a tree; succeeds when it does not exist.
pub(in crate::local) fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("the path to remove has no file name"));
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

/// Opens a directory in another one, without following a link or crossing a mount.
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

/// Removes the entries of a directory. Returns whether it is empty now, which it is not when something was moved to the
/// top; the next pass removes that.
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
                // The filesystem did not report that it is a directory.
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
        // What was moved went to the top and not into this directory, so this directory can be removed.
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

/// Replaces a file atomically and durably. The file beside it has a fixed name, so that crashes leave at most one.
pub(in crate::local) fn write_durably(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    replace_file(path, Path::new(&beside), content, mode)
}

/// Makes the creation and removal of directory entries durable.
pub(in crate::local) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Creates a directory with exactly this mode, regardless of the umask. An existing directory gets the mode.
pub(in crate::local) fn ensure_directory(path: &Path, mode: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Treats "not found" as success, for removals.
pub(in crate::local) fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::fs::mkdirat;

    use super::*;

    /// Odd names and closed directories are removed, the targets of links are not.
    #[test]
    fn removal_keeps_link_targets() {
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

    /// A tree with a mount in it is not removed.
    #[test]
    fn removal_refuses_mounts() {
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
        fs::write(other.join("kept"), "data on another filesystem").unwrap();
        assert!(remove_tree(&tree).is_err() && remove_tree(&other).is_err());
        assert_eq!(fs::read_to_string(other.join("kept")).unwrap(), "data on another filesystem");
        drop(mounted);
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
    }

    /// A tree deeper than the longest path is removed.
    #[test]
    fn removal_handles_unbounded_depth() {
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
