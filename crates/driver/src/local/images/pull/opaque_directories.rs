//! The opaque directories of a layer: those that hide the contents of lower layers.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, XattrFlags, fsetxattr, fstat, open, openat2};
use rustix::io::Errno;

/// The maximum number of opaque directories and of bytes in their paths: the engine keeps them in memory until the
/// layer is complete.
const MAX_PATHS: usize = 100_000;
const MAX_BYTES: usize = 16 << 20;

/// The opaque directories of a layer.
#[derive(Debug, Default)]
pub(super) struct OpaqueDirectories {
    paths: BTreeSet<Vec<u8>>,
    bytes: usize,
}

impl OpaqueDirectories {
    /// Adds a directory, once; returns an error above the limits.
    pub(super) fn add_path(&mut self, path: &[u8]) -> Result<(), &'static str> {
        let path = path.strip_suffix(b"/").unwrap_or(path);
        if self.paths.contains(path) {
            return Ok(());
        }
        self.bytes += path.len();
        if self.paths.len() >= MAX_PATHS || self.bytes > MAX_BYTES {
            return Err("it hides too many directories of the layers below it");
        }
        self.paths.insert(path.to_owned());
        Ok(())
    }

    /// Marks the directories, which only the host's `root` may do. The layer chose the paths, so they are resolved
    /// within its tree. Returns whether the root is among them: the kernel ignores a mark on the root.
    pub(super) fn mark_opaque(&self, tree: &Path) -> io::Result<bool> {
        let root = open(tree, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let itself = fstat(&root)?.st_ino;
        let mut hides_all = false;
        for path in &self.paths {
            let path = if path.is_empty() { b"." } else { path.as_slice() };
            match openat2(&root, path, flags, Mode::empty(), resolve) {
                Ok(directory) if fstat(&directory)?.st_ino == itself => hides_all = true,
                Ok(directory) => fsetxattr(&directory, c"trusted.overlay.opaque", b"y", XattrFlags::empty())?,
                // It has been replaced by something else since.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(hides_all)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn paths_are_unique_and_limited() {
        let mut opaque = OpaqueDirectories::default();
        for path in [b"a/".as_slice(), b"a", b"a"] {
            assert_eq!(opaque.add_path(path), Ok(()));
        }
        assert_eq!((opaque.paths.len(), opaque.bytes), (1, 1));
        let long = |n: u32| [n.to_le_bytes().as_slice(), &[b'x'; 4000]].concat();
        let added = (0..MAX_PATHS as u32).take_while(|n| opaque.add_path(&long(*n)).is_ok()).count();
        assert_eq!(added, MAX_BYTES / 4004);
    }

    #[test]
    fn root_is_recognised_through_a_link() {
        let tree = tempfile::tempdir().unwrap();
        symlink("/", tree.path().join("link")).unwrap();
        let hides_all = |path: &[u8]| {
            let mut opaque = OpaqueDirectories::default();
            opaque.add_path(path).unwrap();
            opaque.mark_opaque(tree.path()).unwrap()
        };
        assert!(hides_all(b"") && hides_all(b"link/"));
        assert!(!hides_all(b"missing"));
    }
}
