//! Removing a tree that somebody else made: a program of its own, so that the guest never walks one itself.
//!
//! Directories may lie in each other without end, and nothing here gets deeper with them: a directory that has something in it
//! is moved up into the topmost one, where its turn comes. No link is followed, and nothing is touched that lies behind
//! a mount.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// The life of the helper: removes what has a name in the directory that is its standard input, whatever it is.
pub fn main(name: &str) -> io::Result<()> {
    crate::spawn::step_back();
    Ok(remove(rustix::stdio::stdin(), name)?)
}

fn remove(parent: impl AsFd, name: &str) -> rustix::io::Result<()> {
    if unlink(&parent, name)? != Unlinked::HasEntries {
        return Ok(());
    }
    let mut tree = Tree { top: open(&parent, name)?, moved: 0, removed: 0, failure: None };
    loop {
        let before = tree.removed;
        tree.clear_all();
        match unlink(&parent, name) {
            Ok(Unlinked::HasEntries) if tree.removed == before => return Err(tree.failure.unwrap_or(Errno::NOTEMPTY)),
            // What is gone by now may have made room for what could not be done before.
            Ok(Unlinked::HasEntries) => tree.failure = None,
            Ok(Unlinked::Now | Unlinked::Before) => return Ok(()),
            Err(e) => return Err(e),
        }
    }
}

/// What came of removing one thing.
#[derive(Debug, PartialEq, Eq)]
enum Unlinked {
    Now,
    /// It was gone already.
    Before,
    /// It is a directory that has something in it.
    HasEntries,
}

/// A tree on its way.
struct Tree {
    top: OwnedFd,
    /// How many directories were moved up; their names count them.
    moved: u64,
    removed: u64,
    /// The first thing that went wrong.
    failure: Option<Errno>,
}

impl Tree {
    /// Removes what is in the topmost directory, and what is moved there meanwhile.
    fn clear_all(&mut self) {
        let mut next = self.moved;
        let entries = Dir::read_from(&self.top);
        self.for_each(entries, |tree, name| tree.clear(name));
        while next < self.moved {
            self.clear(name_of(next).as_str());
            next += 1;
        }
    }

    /// Removes something in the topmost directory.
    fn clear(&mut self, name: impl Arg + Copy) {
        match unlink(&self.top, name) {
            Ok(Unlinked::HasEntries) => {}
            other => return self.note(other),
        }
        let directory = match open(&self.top, name) {
            Ok(directory) => directory,
            Err(e) => return self.note(Err(e)),
        };
        self.for_each(Dir::read_from(&directory), |tree, name| match unlink(&directory, name) {
            Ok(Unlinked::HasEntries) => tree.move_up(&directory, name),
            other => tree.note(other),
        });
        // If something is left, its turn comes again.
        let unlinked = unlink(&self.top, name);
        self.note(unlinked);
    }

    fn move_up(&mut self, directory: &OwnedFd, name: &CStr) {
        loop {
            let fresh = name_of(self.moved);
            self.moved += 1;
            match rustix::fs::renameat(directory, name, &self.top, &fresh) {
                Ok(()) | Err(Errno::NOENT) => return,
                // Somebody has that name already, and is removed by it as well.
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR | Errno::ISDIR) => {}
                Err(e) => return self.note(Err(e)),
            }
        }
    }

    fn for_each(&mut self, entries: rustix::io::Result<Dir>, mut act: impl FnMut(&mut Tree, &CStr)) {
        let entries = match entries {
            Ok(entries) => entries,
            Err(e) => return self.note(Err(e)),
        };
        for entry in entries {
            match entry {
                Ok(entry) if [c".", c".."].contains(&entry.file_name()) => {}
                Ok(entry) => act(self, entry.file_name()),
                Err(e) => return self.note(Err(e)),
            }
        }
    }

    fn note(&mut self, unlinked: rustix::io::Result<Unlinked>) {
        match unlinked {
            Ok(Unlinked::Now) => self.removed += 1,
            Ok(Unlinked::Before | Unlinked::HasEntries) => {}
            Err(e) => self.failure = self.failure.or(Some(e)),
        }
    }
}

fn name_of(number: u64) -> String {
    format!(".tarn-removed-{number}")
}

/// Removes something, unless it is a directory that has something in it. Where something is mounted, that is an error.
fn unlink(directory: impl AsFd, name: impl Arg + Copy) -> rustix::io::Result<Unlinked> {
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

/// Opens a directory that lies in another, on the same filesystem.
fn open(directory: impl AsFd, name: impl Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(directory, name, flags, Mode::empty(), resolve)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

    use std::process::Command;

    use super::*;
    use crate::configuration::files::open_directory;

    /// A directory that is removed in any case; what the library offers for that goes as deep as the directories do.
    struct Deep(tempfile::TempDir);

    impl Drop for Deep {
        fn drop(&mut self) {
            let _ = Command::new("rm").arg("-rf").arg(self.0.path().join("tree")).status();
        }
    }

    #[test]
    fn no_depth_is_too_deep() {
        // In memory where that can be: a disk may take a millisecond for each.
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let deep = Deep(directory);
        let parent = open_directory(deep.0.path()).unwrap();
        let mut below = parent.try_clone().unwrap();
        for level in 0..20_000 {
            let name = if level == 0 { "tree" } else { "d" };
            rustix::fs::mkdirat(&below, name, Mode::RWXU).unwrap();
            below = open(&below, name).unwrap();
        }
        remove(&parent, "tree").unwrap();
        assert!(!deep.0.path().join("tree").exists());
    }

    #[test]
    fn everything_goes_and_nothing_else_does() {
        let directory = tempfile::tempdir().unwrap();
        let (tree, kept) = (directory.path().join("tree"), directory.path().join("kept"));
        std::fs::create_dir(&kept).unwrap();
        std::fs::write(kept.join("file"), "").unwrap();
        for branch in 0..20 {
            // Also by the names that directories get on their way.
            let leaf = tree.join(format!(".tarn-removed-{branch}")).join("a").join(format!("{branch}")).join("b");
            std::fs::create_dir_all(&leaf).unwrap();
            std::fs::write(leaf.join("file"), "").unwrap();
            std::os::unix::fs::symlink(&kept, leaf.join("link")).unwrap();
        }
        std::fs::write(tree.join(".tarn-removed-20"), "").unwrap();
        let parent = open_directory(directory.path()).unwrap();
        remove(&parent, "tree").unwrap();
        remove(&parent, "tree").unwrap();
        std::os::unix::fs::symlink(&kept, directory.path().join("link")).unwrap();
        remove(&parent, "link").unwrap();
        let left: Vec<_> =
            std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["kept"]);
        assert!(kept.join("file").exists());
    }
}
