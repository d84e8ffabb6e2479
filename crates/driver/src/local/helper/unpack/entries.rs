//! What is done with each thing in the archive of a layer.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Timestamps, linkat, mknodat, openat, symlinkat, utimensat};
use rustix::io::Errno;
use tar::EntryType;

use super::super::order::{Report, Unpack, Unpacked};
use super::super::{Failure, say};
use super::archive::{Entries, Entry};
use super::attributes::Attributes;
use super::stream::{Archive, broken};
use super::tree::{BLOCK, Place, Tree, make_directory, shown, unfit, white_out};

/// What is copied at once.
const PIECE: usize = 128 << 10;

/// What the names of whiteouts begin with, and the one that makes its directory opaque.
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// What an old union filesystem noted for itself in layers.
const OWN_NOTES: &[u8] = b".wh..wh.";

/// So many directories are remembered until their time is set.
const MAX_REMEMBERED: usize = 50_000;

/// Unpacks a layer into the root of the sandbox.
pub(super) fn unpack(order: &Unpack, layer: impl Read) -> Result<Unpacked, Failure> {
    let stream = Archive::new(layer, order.most_bytes).map_err(broken)?;
    let mut archive = Entries::new(stream);
    let tree = Tree::open((order.most_bytes, order.most_entries))?;
    let mut unpacking = Unpacking { tree, devices: 0, directories: Vec::new(), piece: vec![0; PIECE] };
    while let Some(entry) = archive.next()? {
        unpacking.apply(&entry, &mut archive)?;
    }
    unpacking.set_times()?;
    let digest = archive.into_inner().finish().map_err(broken)?;
    let Unpacking { tree, devices, .. } = unpacking;
    Ok(Unpacked { digest, bytes: tree.bytes, entries: tree.entries, devices })
}

struct Unpacking {
    tree: Tree,
    devices: u64,
    /// Directories whose time is set when nothing comes into them any more.
    directories: Vec<(Vec<u8>, Timestamps)>,
    piece: Vec<u8>,
}

impl Unpacking {
    fn apply<R: Read>(&mut self, entry: &Entry, contents: &mut Entries<R>) -> Result<(), Failure> {
        self.one(entry, contents).map_err(|failure| match failure {
            Failure::Failed(error) if is_its_fault(&error) => {
                Failure::Unfit(format!("{} in it cannot be made: {error}", shown(&entry.path)))
            }
            other => other,
        })
    }

    fn one<R: Read>(&mut self, entry: &Entry, contents: &mut Entries<R>) -> Result<(), Failure> {
        let (kind, path) = (entry.header.entry_type(), entry.path.as_slice());
        let attributes = Attributes::of(entry)?;
        // Everything costs a block, also what has no contents: there are only so many files that a disk can have.
        self.tree.grow(1, BLOCK + attributes.bytes().next_multiple_of(BLOCK))?;
        let Some(place) = self.tree.place(path)? else {
            // The root itself.
            let root = openat(CWD, "/", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            return if kind == EntryType::Directory { attributes.give(root) } else { Ok(()) };
        };
        if let Some(hidden) = place.name.to_bytes().strip_prefix(WHITEOUT) {
            return self.hide(&place, hidden);
        }
        match kind {
            EntryType::Directory => self.directory(place, &attributes),
            // As archives were before there was a kind for directories.
            EntryType::Regular if path.ends_with(b"/") => self.directory(place, &attributes),
            EntryType::Regular | EntryType::Continuous if !is_sparse(entry) => self.file(contents, &place, &attributes),
            // Holes cost an archive nothing, and whoever reads them much.
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                Err(Failure::Unfit(format!("{} in it is sparse, which is not understood", shown(path))))
            }
            EntryType::Symlink => {
                self.tree.clear(&place)?;
                symlinkat(entry.link.as_slice(), &place.parent, &place.name)?;
                attributes.give_at(&place, false)
            }
            EntryType::Link => self.link(&place, &entry.link),
            EntryType::Fifo => {
                self.tree.clear(&place)?;
                mknodat(&place.parent, &place.name, FileType::Fifo, Mode::RUSR, 0)?;
                attributes.give_at(&place, true)
            }
            EntryType::Char | EntryType::Block => {
                self.devices += 1;
                Ok(())
            }
            _ => Err(Failure::Unfit(format!("{} in it is of a kind that is not understood", shown(path)))),
        }
    }

    fn hide(&mut self, place: &Place, hidden: &[u8]) -> Result<(), Failure> {
        let name = place.name.to_bytes();
        if name == OPAQUE {
            let directory = &place.path[..place.path.len() - name.len()];
            return Ok(say(&Report::Opaque { path: directory.to_vec() })?);
        }
        if name.starts_with(OWN_NOTES) {
            return Ok(());
        }
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(unfit("it hides something that has no name"));
        }
        let mut path = place.path[..place.path.len() - name.len()].to_vec();
        path.extend_from_slice(hidden);
        match self.tree.place(&path)? {
            Some(place) => white_out(&place),
            None => Ok(()),
        }
    }

    fn directory(&mut self, place: Place, attributes: &Attributes) -> Result<(), Failure> {
        if make_directory(&mut self.tree, &place)? {
            say(&Report::Opaque { path: place.path.clone() })?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory: OwnedFd = openat(&place.parent, &place.name, flags, Mode::empty())?;
        attributes.give(&directory)?;
        if self.directories.len() >= MAX_REMEMBERED {
            self.set_times()?;
        }
        self.directories.push((place.path, attributes.changed.clone()));
        Ok(())
    }

    fn file<R: Read>(
        &mut self,
        contents: &mut Entries<R>,
        place: &Place,
        attributes: &Attributes,
    ) -> Result<(), Failure> {
        self.tree.clear(place)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&place.parent, &place.name, flags, Mode::RUSR | Mode::WUSR)?);
        let mut size = 0;
        loop {
            let length = match contents.read(&mut self.piece).map_err(broken)? {
                0 => break,
                length => length as u64,
            };
            // What it takes is counted before it is taken.
            let more = (size + length).next_multiple_of(BLOCK) - size.next_multiple_of(BLOCK);
            self.tree.grow(0, more)?;
            size += length;
            file.write_all(&self.piece[..length as usize])?;
        }
        attributes.give(&file)
    }

    fn link(&mut self, place: &Place, target: &[u8]) -> Result<(), Failure> {
        let missing =
            || Failure::Unfit(format!("{} in it is a link to a file that it does not have", shown(&place.path)));
        let target = self.tree.find(target)?.ok_or_else(missing)?;
        if target.path == place.path {
            return Ok(());
        }
        self.tree.clear(place)?;
        match linkat(&target.parent, &target.name, &place.parent, &place.name, AtFlags::empty()) {
            Err(Errno::NOENT | Errno::PERM) => Err(missing()),
            done => Ok(done?),
        }
    }

    /// Sets the times of the directories: what came into them has changed them.
    fn set_times(&mut self) -> Result<(), Failure> {
        for (path, times) in std::mem::take(&mut self.directories) {
            if let Some(place) = self.tree.find(&path)? {
                match utimensat(&place.parent, &place.name, &times, AtFlags::SYMLINK_NOFOLLOW) {
                    // Something else has come to its place.
                    Err(Errno::NOENT) => {}
                    done => done?,
                }
            }
        }
        Ok(())
    }
}

/// Newer forms of sparse files would be written as if their map were their contents.
fn is_sparse(entry: &Entry) -> bool {
    entry.notes.0.iter().any(|(key, _)| key.starts_with(b"GNU.sparse."))
}

/// Whether the kernel refused what the archive asks for, and not what this machine could not do.
fn is_its_fault(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    !matches!(
        code,
        None | Some(Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::ROFS)
    )
}
