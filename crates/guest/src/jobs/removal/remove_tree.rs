//! Removes an untrusted directory tree: a helper program, so that the guest never walks one itself.
//!
//! Directories may be nested to any depth, and the recursion here does not grow with them: a directory with entries is
//! moved up into the topmost one and handled there later. No link is followed, and nothing below a mount is touched.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// Runs the helper: removes the entry of this name, of any kind, from the directory on its standard input.
pub fn run_remove_helper(name: &str) -> io::Result<()> {
    crate::process::spawn::reset_priority();
    Ok(remove_tree(rustix::stdio::stdin(), name)?)
}

fn remove_tree(parent: impl AsFd, name: &str) -> rustix::io::Result<()> {
    if unlink_entry(&parent, name)? != Unlinked::HasEntries {
        return Ok(());
    }
    let mut tree = Tree { top: open_same_filesystem(&parent, name)?, moved: 0, removed: 0, failure: None };
    loop {
        let before = tree.removed;
        tree.clear_top();
        match unlink_entry(&parent, name) {
            Ok(Unlinked::HasEntries) if tree.removed == before => return Err(tree.failure.unwrap_or(Errno::NOTEMPTY)),
            // The removed entries may have freed the space that a move needed.
            Ok(Unlinked::HasEntries) => tree.failure = None,
            Ok(Unlinked::Now | Unlinked::Before) => return Ok(()),
            Err(e) => return Err(e),
        }
    }
}

/// The result of removing one entry.
#[derive(Debug, PartialEq, Eq)]
enum Unlinked {
    Now,
    Before,
    /// A directory with entries.
    HasEntries,
}

/// A tree that is being removed.
struct Tree {
    top: OwnedFd,
    /// How many directories were moved up; their names contain this number.
    moved: u64,
    removed: u64,
    /// The first failure.
    failure: Option<Errno>,
}

impl Tree {
    /// Removes the entries of the topmost directory, including those that are moved there meanwhile.
    fn clear_top(&mut self) {
        let mut next = self.moved;
        let entries = Dir::read_from(&self.top);
        self.for_each_entry(entries, |tree, name| tree.clear_entry(name));
        while next < self.moved {
            self.clear_entry(moved_name(next).as_str());
            next += 1;
        }
    }

    /// Removes an entry of the topmost directory.
    fn clear_entry(&mut self, name: impl Arg + Copy) {
        match unlink_entry(&self.top, name) {
            Ok(Unlinked::HasEntries) => {}
            other => return self.record_result(other),
        }
        let directory = match open_same_filesystem(&self.top, name) {
            Ok(directory) => directory,
            Err(e) => return self.record_result(Err(e)),
        };
        self.for_each_entry(Dir::read_from(&directory), |tree, name| match unlink_entry(&directory, name) {
            Ok(Unlinked::HasEntries) => tree.move_up(&directory, name),
            other => tree.record_result(other),
        });
        // If entries are left, the next pass handles them.
        let unlinked = unlink_entry(&self.top, name);
        self.record_result(unlinked);
    }

    fn move_up(&mut self, directory: &OwnedFd, name: &CStr) {
        loop {
            let fresh = moved_name(self.moved);
            self.moved += 1;
            match rustix::fs::renameat(directory, name, &self.top, &fresh) {
                Ok(()) | Err(Errno::NOENT) => return,
                // The name is taken; that entry is removed as well.
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR | Errno::ISDIR) => {}
                Err(e) => return self.record_result(Err(e)),
            }
        }
    }

    fn for_each_entry(&mut self, entries: rustix::io::Result<Dir>, mut act: impl FnMut(&mut Tree, &CStr)) {
        let entries = match entries {
            Ok(entries) => entries,
            Err(e) => return self.record_result(Err(e)),
        };
        for entry in entries {
            match entry {
                Ok(entry) if [c".", c".."].contains(&entry.file_name()) => {}
                Ok(entry) => act(self, entry.file_name()),
                Err(e) => return self.record_result(Err(e)),
            }
        }
    }

    fn record_result(&mut self, unlinked: rustix::io::Result<Unlinked>) {
        match unlinked {
            Ok(Unlinked::Now) => self.removed += 1,
            Ok(Unlinked::Before | Unlinked::HasEntries) => {}
            Err(e) => self.failure = self.failure.or(Some(e)),
        }
    }
}

fn moved_name(number: u64) -> String {
    format!(".tarn-removed-{number}")
}

/// Removes an entry, unless it is a directory with entries. A mount point is an error.
fn unlink_entry(directory: impl AsFd, name: impl Arg + Copy) -> rustix::io::Result<Unlinked> {
    let unlinked = match rustix::fs::unlinkat(&directory, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => rustix::fs::unlinkat(&directory, name, AtFlags::REMOVEDIR),
        unlinked => unlinked,
    };
    match unlinked {
        Ok(()) => Ok(Unlinked::Now),
        Err(Errno::NOENT) => Ok(Unlinked::Before),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(Unlinked::HasEntries),
        Err(e) => Err(e),
    }
}

/// Opens a directory inside another, on the same filesystem.
fn open_same_filesystem(directory: impl AsFd, name: impl Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(directory, name, flags, Mode::empty(), resolve)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

    use std::process::Command;

    use super::*;
    use crate::filesystem::open_directory;

    /// A directory that is removed in any case; the library would recurse as deep as the directories.
    struct Deep(tempfile::TempDir);

    impl Drop for Deep {
        fn drop(&mut self) {
            let _ = Command::new("rm").arg("-rf").arg(self.0.path().join("tree")).status();
        }
    }

    /// Trees of any depth are removed.
    #[test]
    fn remove_handles_any_depth() {
        // In memory if possible: a disk may take a millisecond per directory.
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let deep = Deep(directory);
        let parent = open_directory(deep.0.path()).unwrap();
        let mut below = parent.try_clone().unwrap();
        for level in 0..20_000 {
            let name = if level == 0 { "tree" } else { "d" };
            rustix::fs::mkdirat(&below, name, Mode::RWXU).unwrap();
            below = open_same_filesystem(&below, name).unwrap();
        }
        remove_tree(&parent, "tree").unwrap();
        assert!(!deep.0.path().join("tree").exists());
    }

    /// The whole tree is removed, and nothing else.
    #[test]
    fn remove_takes_only_the_tree() {
        let directory = tempfile::tempdir().unwrap();
        let (tree, kept) = (directory.path().join("tree"), directory.path().join("kept"));
        std::fs::create_dir(&kept).unwrap();
        std::fs::write(kept.join("file"), "").unwrap();
        for branch in 0..20 {
            // Includes the names that moved directories get.
            let leaf = tree.join(format!(".tarn-removed-{branch}")).join("a").join(format!("{branch}")).join("b");
            std::fs::create_dir_all(&leaf).unwrap();
            std::fs::write(leaf.join("file"), "").unwrap();
            std::os::unix::fs::symlink(&kept, leaf.join("link")).unwrap();
        }
        std::fs::write(tree.join(".tarn-removed-20"), "").unwrap();
        let parent = open_directory(directory.path()).unwrap();
        remove_tree(&parent, "tree").unwrap();
        remove_tree(&parent, "tree").unwrap();
        std::os::unix::fs::symlink(&kept, directory.path().join("link")).unwrap();
        remove_tree(&parent, "link").unwrap();
        let left: Vec<_> =
            std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["kept"]);
        assert!(kept.join("file").exists());
    }
}
