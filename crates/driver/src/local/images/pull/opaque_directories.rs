//! The directories of a layer that hide what lower layers have there.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, XattrFlags, fsetxattr, fstat, open, openat2};
use rustix::io::Errno;

/// So many there may be, with so many bytes in their paths: the engine has to remember them until the layer is whole.
const MAX_PATHS: usize = 100_000;
const MAX_BYTES: usize = 16 << 20;

/// Directories of a layer that hide what lower layers have there.
#[derive(Debug, Default)]
pub(super) struct Opaque {
    paths: BTreeSet<Vec<u8>>,
    bytes: usize,
}

impl Opaque {
    /// Notes one, however often it is said; or says why that cannot be.
    pub(in crate::local::images) fn add(&mut self, path: &[u8]) -> Result<(), &'static str> {
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

    /// Marks them, which only the machine's `root` may. The layer chose the paths, so they are looked up in its tree as if that were
    /// all there is. Says whether the root is among them: the kernel does not look at its mark.
    pub(super) fn hide_lower(&self, tree: &Path) -> io::Result<bool> {
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
                // Something else has come to its place since.
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
    fn each_is_remembered_once_and_not_without_end() {
        let mut opaque = Opaque::default();
        for path in [b"a/".as_slice(), b"a", b"a"] {
            assert_eq!(opaque.add(path), Ok(()));
        }
        assert_eq!((opaque.paths.len(), opaque.bytes), (1, 1));
        let long = |n: u32| [n.to_le_bytes().as_slice(), &[b'x'; 4000]].concat();
        let added = (0..MAX_PATHS as u32).take_while(|n| opaque.add(&long(*n)).is_ok()).count();
        assert_eq!(added, MAX_BYTES / 4004);
    }

    #[test]
    fn the_root_is_found_also_through_a_link() {
        let tree = tempfile::tempdir().unwrap();
        symlink("/", tree.path().join("link")).unwrap();
        let hides_all = |path: &[u8]| {
            let mut opaque = Opaque::default();
            opaque.add(path).unwrap();
            opaque.hide_lower(tree.path()).unwrap()
        };
        assert!(hides_all(b"") && hides_all(b"link/"));
        assert!(!hides_all(b"missing"));
    }
}
