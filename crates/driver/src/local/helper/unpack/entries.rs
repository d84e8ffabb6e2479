//! What is done with each thing in the archive of a layer.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Timestamps, linkat, mknodat, openat, symlinkat, utimensat};
use rustix::io::Errno;
use tar::EntryType;

use super::super::order::{Report, Unpack, Unpacked};
use super::super::{Failure, say};
use super::attributes::Attributes;
use super::stream::{Archive, broken};
use super::tree::{Place, Tree, make_directory, shown, unfit, white_out};

/// What is copied at once.
const PIECE: usize = 128 << 10;

/// What a filesystem gives out at least.
const BLOCK: u64 = 4 << 10;

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
    let mut archive = tar::Archive::new(stream);
    let tree = Tree::open((order.most_bytes, order.most_entries))?;
    let mut unpacking = Unpacking { tree, devices: 0, directories: Vec::new(), piece: vec![0; PIECE] };
    for entry in archive.entries().map_err(broken)? {
        unpacking.apply(entry.map_err(broken)?)?;
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
    fn apply<R: Read>(&mut self, mut entry: tar::Entry<'_, R>) -> Result<(), Failure> {
        let kind = entry.header().entry_type();
        let path = entry.path_bytes().into_owned();
        if kind == EntryType::XGlobalHeader {
            return Ok(());
        }
        self.one(&mut entry, kind, &path).map_err(|failure| match failure {
            Failure::Failed(error) if is_its_fault(&error) => {
                Failure::Unfit(format!("{} in it cannot be made: {error}", shown(&path)))
            }
            other => other,
        })
    }

    fn one<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>, kind: EntryType, path: &[u8]) -> Result<(), Failure> {
        let attributes = Attributes::of(entry, path)?;
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
            EntryType::Regular | EntryType::Continuous => self.file(entry, &place, &attributes, false),
            EntryType::GNUSparse => self.file(entry, &place, &attributes, true),
            EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                self.tree.clear(&place)?;
                self.tree.grow(1, 0)?;
                symlinkat(target.as_slice(), &place.parent, &place.name)?;
                attributes.give_at(&place, false)
            }
            EntryType::Link => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                self.link(&place, &target)
            }
            EntryType::Fifo => {
                self.tree.clear(&place)?;
                self.tree.grow(1, 0)?;
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
            Some(place) => white_out(&mut self.tree, &place),
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
        entry: &mut tar::Entry<'_, R>,
        place: &Place,
        attributes: &Attributes,
        is_sparse: bool,
    ) -> Result<(), Failure> {
        if is_sparse_in_pax(entry)? {
            return Err(Failure::Unfit(format!(
                "{} in it is sparse in a way that is not understood",
                shown(&place.path)
            )));
        }
        self.tree.clear(place)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&place.parent, &place.name, flags, Mode::RUSR | Mode::WUSR)?);
        self.tree.grow(1, 0)?;
        loop {
            let length = match entry.read(&mut self.piece) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) => return Err(broken(error)),
            };
            let piece = &self.piece[..length];
            if is_sparse && piece.iter().all(|byte| *byte == 0) {
                file.seek(SeekFrom::Current(i64::try_from(length).unwrap_or(i64::MAX)))?;
                continue;
            }
            file.write_all(piece)?;
            self.tree.grow(0, (length as u64).next_multiple_of(BLOCK))?;
        }
        if is_sparse {
            // A hole at the end is part of the file.
            let end = file.stream_position()?;
            file.set_len(end)?;
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
        self.tree.grow(1, 0)?;
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
fn is_sparse_in_pax<R: Read>(entry: &mut tar::Entry<'_, R>) -> Result<bool, Failure> {
    let mut extensions = entry.pax_extensions().map_err(broken)?.into_iter().flatten().flatten();
    Ok(extensions.any(|extension| extension.key_bytes().starts_with(b"GNU.sparse.")))
}

/// Whether the kernel refused what the archive asks for, and not what this machine could not do.
fn is_its_fault(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    !matches!(
        code,
        None | Some(Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::ROFS)
    )
}
