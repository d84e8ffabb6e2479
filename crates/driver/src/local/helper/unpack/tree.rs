//! The way through the tree that is being unpacked. Links are followed, but only inside of the layer, as they would be in an
//! instance; and a name that is taken is given to what comes later.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, mkdirat, mknodat, openat, openat2, statat};
use rustix::io::Errno;

use super::super::Failure;
use super::super::order::Report;
use super::super::say;
use crate::local::host::trees;

/// No path is longer, so that the kernel can take it whole.
const MAX_PATH: usize = 4_000;

/// What a filesystem gives out at least, and about as much as anything takes besides its contents.
pub(super) const BLOCK: u64 = 4 << 10;

/// After so much more the engine is told.
const STEP: u64 = 64 << 20;

/// The tree, and how much it has grown.
pub(super) struct Tree {
    root: OwnedFd,
    /// The directory that was asked for last: most things lie beside the one before.
    last: Option<(Vec<u8>, Rc<OwnedFd>)>,
    pub(super) bytes: u64,
    told: u64,
    pub(super) entries: u64,
    most: (u64, u64),
}

/// A place in the tree: a name in an open directory.
pub(super) struct Place {
    pub(super) parent: Rc<OwnedFd>,
    pub(super) name: CString,
    /// The whole path.
    pub(super) path: Vec<u8>,
}

impl Tree {
    /// The tree at the root of the sandbox, with so many bytes and so many entries at most.
    pub(super) fn open(most: (u64, u64)) -> Result<Self, Failure> {
        let root = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Tree { root, last: None, bytes: 0, told: 0, entries: 0, most })
    }

    /// Where a path leads; `None` for the root itself. Directories on the way that are missing are made.
    pub(super) fn place(&mut self, path: &[u8]) -> Result<Option<Place>, Failure> {
        let path = normal(path)?;
        let Some((parent, name)) = split(&path) else { return Ok(None) };
        let name = CString::new(name).map_err(|_| unfit("a name in it has a zero byte"))?;
        let parent = self.directory(parent, 0)?;
        Ok(Some(Place { parent, name, path }))
    }

    /// What a path names that must be there already, for links.
    pub(super) fn find(&mut self, path: &[u8]) -> Result<Option<Place>, Failure> {
        let path = normal(path)?;
        let Some((parent, name)) = split(&path) else { return Ok(None) };
        let name = CString::new(name).map_err(|_| unfit("a name in it has a zero byte"))?;
        match self.enter(parent) {
            Ok(parent) => Ok(Some(Place { parent: Rc::new(parent), name, path })),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a place free: whatever was there goes, with all that is below it. Says whether it was a whiteout, so that whoever
    /// comes there hides what lower layers have.
    pub(super) fn clear(&mut self, place: &Place) -> Result<bool, Failure> {
        let Some(found) = stat(place)? else { return Ok(false) };
        let was_whiteout = is_whiteout(&found);
        self.last = None;
        trees::remove_tree_in(&place.parent, &place.name)?;
        Ok(was_whiteout)
    }

    /// Notes something new, and tells the engine now and then.
    pub(super) fn grow(&mut self, entries: u64, bytes: u64) -> Result<(), Failure> {
        self.entries += entries;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.entries > self.most.1 {
            return Err(Failure::Unfit(format!("it holds more than {} files", self.most.1)));
        }
        if self.bytes > self.most.0 {
            return Err(Failure::Full);
        }
        if self.bytes >= self.told + STEP {
            self.told = self.bytes;
            say(&Report::Grown { bytes: self.bytes })?;
        }
        Ok(())
    }

    /// A directory, made if it is missing, with those above it.
    fn directory(&mut self, path: &[u8], depth: u32) -> Result<Rc<OwnedFd>, Failure> {
        if let Some((known, directory)) = &self.last
            && known == path
        {
            return Ok(directory.clone());
        }
        let directory = match self.enter(path) {
            Err(Errno::NOENT | Errno::NOTDIR) if depth < MAX_PATH as u32 => self.make(path, depth)?,
            Err(Errno::LOOP) => return Err(leads_nowhere(path)),
            entered => entered?,
        };
        let directory = Rc::new(directory);
        self.last = Some((path.to_vec(), directory.clone()));
        Ok(directory)
    }

    /// Makes a directory that the archive has not named, where nothing or a whiteout is.
    fn make(&mut self, path: &[u8], depth: u32) -> Result<OwnedFd, Failure> {
        let (above, name) = split(path).ok_or_else(|| unfit("its root is no directory"))?;
        let name = CString::new(name).map_err(|_| unfit("a name in it has a zero byte"))?;
        let place = Place { parent: self.directory(above, depth + 1)?, name, path: path.to_vec() };
        match stat(&place)? {
            Some(found) if is_whiteout(&found) => {
                self.clear(&place)?;
                say(&Report::Opaque { path: path.to_vec() })?;
            }
            Some(_) => return Err(leads_nowhere(path)),
            None => {}
        }
        mkdirat(&place.parent, &place.name, Mode::from_raw_mode(0o755))?;
        self.grow(1, BLOCK)?;
        self.enter(path).map_err(Into::into)
    }

    /// Opens a directory that is there; links are followed below the root only.
    fn enter(&self, path: &[u8]) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let path = if path.is_empty() { b"." } else { path };
        openat2(&self.root, path, flags, Mode::empty(), resolve)
    }
}

/// Makes a directory, which has its attributes later; one that is there stays. Says whether it must hide what lower layers have.
pub(super) fn make_directory(tree: &mut Tree, place: &Place) -> Result<bool, Failure> {
    if stat(place)?.is_some_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory) {
        return Ok(false);
    }
    let hides = tree.clear(place)?;
    mkdirat(&place.parent, &place.name, Mode::RWXU)?;
    Ok(hides)
}

/// Hides what lower layers have at a place. What this layer itself has there stays, and a directory is opaque then.
pub(super) fn white_out(place: &Place) -> Result<(), Failure> {
    match stat(place)? {
        Some(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => {
            Ok(say(&Report::Opaque { path: place.path.clone() })?)
        }
        Some(_) => Ok(()),
        None => Ok(mknodat(&place.parent, &place.name, FileType::CharacterDevice, Mode::empty(), 0)?),
    }
}

pub(super) fn unfit(why: &str) -> Failure {
    Failure::Unfit(why.to_owned())
}

/// A name as it may be shown: cut, and without anything that would not be a line.
pub(super) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(&path[..path.len().min(200)]).escape_debug().to_string()
}

fn leads_nowhere(path: &[u8]) -> Failure {
    Failure::Unfit(format!("it puts something below {}, which is no directory in it", shown(path)))
}

fn stat(place: &Place) -> rustix::io::Result<Option<Stat>> {
    match statat(place.parent.as_fd(), &place.name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(None),
        found => found.map(Some),
    }
}

fn is_whiteout(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice && found.st_rdev == 0
}

/// A path without what has no meaning: it begins at the root, whatever it says, and never goes up.
fn normal(path: &[u8]) -> Result<Vec<u8>, Failure> {
    if path.len() > MAX_PATH {
        return Err(unfit("a path in it is too long"));
    }
    let mut whole = Vec::with_capacity(path.len());
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
        if part == b".." {
            return Err(Failure::Unfit(format!("it names {}, which leads out of the image", shown(path))));
        }
        if !whole.is_empty() {
            whole.push(b'/');
        }
        whole.extend_from_slice(part);
    }
    Ok(whole)
}

/// The directory and the name; nothing for the root.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => Some((&path[..at], &path[at + 1..])),
        None if path.is_empty() => None,
        None => Some((b"", path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside() {
        let plain = |path: &[u8]| normal(path).ok();
        assert_eq!(plain(b"./a//b/./c/").unwrap(), b"a/b/c");
        assert_eq!(plain(b"/etc/passwd").unwrap(), b"etc/passwd");
        assert_eq!(plain(b"/").unwrap(), b"");
        assert_eq!(plain(b"a/..b/c").unwrap(), b"a/..b/c");
        for out in [b"../a".as_slice(), b"a/../../b", b"a/.."] {
            assert!(plain(out).is_none());
        }
        assert!(plain(&[b'a'; 5_000]).is_none());
        assert_eq!(split(b"a/b/c").unwrap(), (b"a/b".as_slice(), b"c".as_slice()));
        assert!(split(b"").is_none());
    }
}
