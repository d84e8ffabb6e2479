//! The directory tree that is being unpacked. Links are followed, but only inside of the layer, as they would be in an
//! instance. An entry replaces an earlier one with the same name.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, mkdirat, mknodat, openat, openat2, statat};
use rustix::io::Errno;
use tarn_base::plain;

use super::super::Failure;
use super::super::order::Report;
use super::super::send_report;
use crate::local::host::files;

/// The maximum length of a path, so that the kernel accepts it as a whole.
const MAX_PATH: usize = 4_000;

/// The allocation unit of a filesystem, and the approximate overhead of an entry.
pub(super) const BLOCK: u64 = 4 << 10;

/// The growth after which a report is sent.
const STEP: u64 = 64 << 20;

/// The tree, and how much it has grown.
pub(super) struct Tree {
    root: OwnedFd,
    /// The directory that was opened last: most entries are beside the previous one.
    last: Option<(Vec<u8>, Rc<OwnedFd>)>,
    pub(super) bytes: u64,
    reported: u64,
    pub(super) entries: u64,
    most: (u64, u64),
}

/// An entry of the tree: a name in an open directory.
pub(super) struct TreeEntry {
    pub(super) parent: Rc<OwnedFd>,
    pub(super) name: CString,
    pub(super) path: Vec<u8>,
}

impl Tree {
    /// Opens the tree at the root of the sandbox, with limits for bytes and entries.
    pub(super) fn open(most: (u64, u64)) -> Result<Self, Failure> {
        let root = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Tree { root, last: None, bytes: 0, reported: 0, entries: 0, most })
    }

    /// Resolves a path; `None` for the root itself. Missing directories on the way are created.
    pub(super) fn resolve_entry(&mut self, path: &[u8]) -> Result<Option<TreeEntry>, Failure> {
        let path = normalise_path(path)?;
        let Some((parent, name)) = split_path(&path) else { return Ok(None) };
        let name = CString::new(name).map_err(|_| unfit_archive("a name in it has a zero byte"))?;
        let parent = self.open_directory(parent, 0)?;
        Ok(Some(TreeEntry { parent, name, path }))
    }

    /// Returns an existing entry, for links.
    pub(super) fn find_entry(&mut self, path: &[u8]) -> Result<Option<TreeEntry>, Failure> {
        let path = normalise_path(path)?;
        let Some((parent, name)) = split_path(&path) else { return Ok(None) };
        let name = CString::new(name).map_err(|_| unfit_archive("a name in it has a zero byte"))?;
        match self.open_existing_directory(parent) {
            Ok(parent) => Ok(Some(TreeEntry { parent: Rc::new(parent), name, path })),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes an existing entry, with everything below it. Returns whether it was a whiteout, so that its replacement
    /// hides lower layers.
    pub(super) fn clear_entry(&mut self, place: &TreeEntry) -> Result<bool, Failure> {
        let Some(found) = stat_entry(place)? else { return Ok(false) };
        let was_whiteout = is_whiteout(&found);
        self.last = None;
        files::remove_tree_in(&place.parent, &place.name)?;
        Ok(was_whiteout)
    }

    /// Counts new entries and bytes, and reports the growth now and then.
    pub(super) fn record_growth(&mut self, entries: u64, bytes: u64) -> Result<(), Failure> {
        self.entries += entries;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.entries > self.most.1 {
            return Err(Failure::Unfit(format!("it holds more than {} files", self.most.1)));
        }
        if self.bytes > self.most.0 {
            return Err(Failure::Full);
        }
        if self.bytes >= self.reported + STEP {
            self.reported = self.bytes;
            send_report(&Report::Grown { bytes: self.bytes })?;
        }
        Ok(())
    }

    /// Opens a directory; missing ones are created.
    fn open_directory(&mut self, path: &[u8], depth: u32) -> Result<Rc<OwnedFd>, Failure> {
        if let Some((known, directory)) = &self.last
            && known == path
        {
            return Ok(directory.clone());
        }
        let directory = match self.open_existing_directory(path) {
            Err(Errno::NOENT | Errno::NOTDIR) if depth < MAX_PATH as u32 => self.make_missing_directory(path, depth)?,
            Err(Errno::LOOP) => return Err(not_a_directory(path)),
            entered => entered?,
        };
        let directory = Rc::new(directory);
        self.last = Some((path.to_vec(), directory.clone()));
        Ok(directory)
    }

    /// Creates a directory that the archive has not listed, in place of nothing or a whiteout.
    fn make_missing_directory(&mut self, path: &[u8], depth: u32) -> Result<OwnedFd, Failure> {
        let (above, name) = split_path(path).ok_or_else(|| unfit_archive("its root is not a directory"))?;
        let name = CString::new(name).map_err(|_| unfit_archive("a name in it has a zero byte"))?;
        let place = TreeEntry { parent: self.open_directory(above, depth + 1)?, name, path: path.to_vec() };
        match stat_entry(&place)? {
            Some(found) if is_whiteout(&found) => {
                self.clear_entry(&place)?;
                send_report(&Report::Opaque { path: path.to_vec() })?;
            }
            Some(_) => return Err(not_a_directory(path)),
            None => {}
        }
        mkdirat(&place.parent, &place.name, Mode::from_raw_mode(0o755))?;
        self.record_growth(1, BLOCK)?;
        self.open_existing_directory(path).map_err(Into::into)
    }

    /// Opens an existing directory; links are followed below the root only.
    fn open_existing_directory(&self, path: &[u8]) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let path = if path.is_empty() { b"." } else { path };
        openat2(&self.root, path, flags, Mode::empty(), resolve)
    }
}

/// Creates a directory, whose attributes are set later; an existing one stays. Returns whether it must hide lower
/// layers.
pub(super) fn make_directory(tree: &mut Tree, place: &TreeEntry) -> Result<bool, Failure> {
    if stat_entry(place)?.is_some_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory) {
        return Ok(false);
    }
    let hides = tree.clear_entry(place)?;
    mkdirat(&place.parent, &place.name, Mode::RWXU)?;
    Ok(hides)
}

/// Hides the entry of lower layers. What this layer itself has there stays, and a directory becomes opaque.
pub(super) fn make_whiteout(place: &TreeEntry) -> Result<(), Failure> {
    match stat_entry(place)? {
        Some(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => {
            Ok(send_report(&Report::Opaque { path: place.path.clone() })?)
        }
        Some(_) => Ok(()),
        None => Ok(mknodat(&place.parent, &place.name, FileType::CharacterDevice, Mode::empty(), 0)?),
    }
}

pub(super) fn unfit_archive(why: &str) -> Failure {
    Failure::Unfit(why.to_owned())
}

/// Returns a path for an error message.
pub(super) fn printable_path(path: &[u8]) -> String {
    plain(&String::from_utf8_lossy(path), 200).into_owned()
}

fn not_a_directory(path: &[u8]) -> Failure {
    Failure::Unfit(format!("it puts something below {}, which is not a directory in it", printable_path(path)))
}

fn stat_entry(place: &TreeEntry) -> rustix::io::Result<Option<Stat>> {
    match statat(place.parent.as_fd(), &place.name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(None),
        found => found.map(Some),
    }
}

fn is_whiteout(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice && found.st_rdev == 0
}

/// Normalises a path: it is relative to the root, and must not go up.
fn normalise_path(path: &[u8]) -> Result<Vec<u8>, Failure> {
    if path.len() > MAX_PATH {
        return Err(unfit_archive("a path in it is too long"));
    }
    let mut whole = Vec::with_capacity(path.len());
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
        if part == b".." {
            return Err(Failure::Unfit(format!("it names {}, which leads out of the image", printable_path(path))));
        }
        if !whole.is_empty() {
            whole.push(b'/');
        }
        whole.extend_from_slice(part);
    }
    Ok(whole)
}

/// Returns the directory and the name; `None` for the root.
fn split_path(path: &[u8]) -> Option<(&[u8], &[u8])> {
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
        let plain = |path: &[u8]| normalise_path(path).ok();
        assert_eq!(plain(b"./a//b/./c/").unwrap(), b"a/b/c");
        assert_eq!(plain(b"/etc/passwd").unwrap(), b"etc/passwd");
        assert_eq!(plain(b"/").unwrap(), b"");
        assert_eq!(plain(b"a/..b/c").unwrap(), b"a/..b/c");
        for out in [b"../a".as_slice(), b"a/../../b", b"a/.."] {
            assert!(plain(out).is_none());
        }
        assert!(plain(&[b'a'; 5_000]).is_none());
        assert_eq!(split_path(b"a/b/c").unwrap(), (b"a/b".as_slice(), b"c".as_slice()));
        assert!(split_path(b"").is_none());
    }
}
