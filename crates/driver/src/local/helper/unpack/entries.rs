//! Unpacks each entry of the archive of a layer.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Timestamps, linkat, mknodat, openat, symlinkat, utimensat};
use rustix::io::Errno;
use tarn_base::archive::{Entries, Entry, EntryType};

use super::super::order::{Report, Unpack, Unpacked};
use super::super::{Failure, send_report};
use super::attributes::Attributes;
use super::stream::{LayerStream, archive_error};
use super::tree::{BLOCK, Tree, TreeEntry, make_directory, make_whiteout, printable_path, unfit_archive};

/// The maximum size of a name or of the PAX records of one entry.
const MAX_EXTENSION: u64 = 4 << 20;

/// The size of the copy buffer.
const PIECE: usize = 128 << 10;

/// The prefix of whiteouts, and the name that makes its directory opaque.
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// The prefix of internal files of AUFS.
const AUFS_PREFIX: &[u8] = b".wh..wh.";

/// How many directories are remembered until their times are set.
const MAX_REMEMBERED: usize = 50_000;

/// Unpacks a layer into the root of the sandbox.
pub(super) fn unpack_archive(order: &Unpack, layer: impl Read) -> Result<Unpacked, Failure> {
    let stream = LayerStream::new(layer, order.most_bytes).map_err(archive_error)?;
    let mut archive = Entries::new(stream, MAX_EXTENSION);
    let tree = Tree::open((order.most_bytes, order.most_entries))?;
    let mut unpacking = Unpacking { tree, devices: 0, directories: Vec::new(), piece: vec![0; PIECE] };
    while let Some(entry) = archive.next_entry().map_err(archive_error)? {
        unpacking.unpack_entry(&entry, &mut archive)?;
    }
    unpacking.set_directory_times()?;
    let digest = archive.into_inner().finish().map_err(archive_error)?;
    let Unpacking { tree, devices, .. } = unpacking;
    Ok(Unpacked { digest, bytes: tree.bytes, entries: tree.entries, devices })
}

struct Unpacking {
    tree: Tree,
    devices: u64,
    /// Directories whose times are set when nothing is added to them any more.
    directories: Vec<(Vec<u8>, Timestamps)>,
    piece: Vec<u8>,
}

impl Unpacking {
    fn unpack_entry<R: Read>(&mut self, entry: &Entry, contents: &mut Entries<R>) -> Result<(), Failure> {
        self.unpack_by_type(entry, contents).map_err(|failure| match failure {
            Failure::Failed(error) if is_archive_fault(&error) => {
                Failure::Unfit(format!("{} in it cannot be created: {error}", printable_path(&entry.path)))
            }
            other => other,
        })
    }

    fn unpack_by_type<R: Read>(&mut self, entry: &Entry, contents: &mut Entries<R>) -> Result<(), Failure> {
        let (kind, path) = (entry.kind, entry.path.as_slice());
        let attributes = Attributes::of_entry(entry)?;
        // Every entry costs a block, even without contents, because the number of files of a disk is limited.
        self.tree.record_growth(1, BLOCK + attributes.bytes().next_multiple_of(BLOCK))?;
        let Some(place) = self.tree.resolve_entry(path)? else {
            // The root itself.
            let root = openat(CWD, "/", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            return if kind == EntryType::Directory { attributes.apply_to(root) } else { Ok(()) };
        };
        if let Some(hidden) = place.name.to_bytes().strip_prefix(WHITEOUT) {
            return self.apply_whiteout(&place, hidden);
        }
        match kind {
            EntryType::Directory => self.unpack_directory(place, &attributes),
            // The form of archives before there was a type for directories.
            EntryType::Regular if path.ends_with(b"/") => self.unpack_directory(place, &attributes),
            EntryType::Regular | EntryType::Continuous => self.unpack_file(contents, &place, &attributes),
            EntryType::GNUSparse => {
                Err(Failure::Unfit(format!("{} in it is sparse, which is not supported", printable_path(path))))
            }
            EntryType::Symlink => {
                self.tree.clear_entry(&place)?;
                symlinkat(entry.link.as_slice(), &place.parent, &place.name)?;
                attributes.apply_at(&place, false)
            }
            EntryType::Link => self.unpack_hard_link(&place, &entry.link),
            EntryType::Fifo => {
                self.tree.clear_entry(&place)?;
                mknodat(&place.parent, &place.name, FileType::Fifo, Mode::RUSR, 0)?;
                attributes.apply_at(&place, true)
            }
            EntryType::Char | EntryType::Block => {
                self.devices += 1;
                Ok(())
            }
            _ => Err(Failure::Unfit(format!("{} in it is of an unsupported kind", printable_path(path)))),
        }
    }

    fn apply_whiteout(&mut self, place: &TreeEntry, hidden: &[u8]) -> Result<(), Failure> {
        let name = place.name.to_bytes();
        if name == OPAQUE {
            let directory = &place.path[..place.path.len() - name.len()];
            return Ok(send_report(&Report::Opaque { path: directory.to_vec() })?);
        }
        if name.starts_with(AUFS_PREFIX) {
            return Ok(());
        }
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(unfit_archive("it has a whiteout without a name"));
        }
        let mut path = place.path[..place.path.len() - name.len()].to_vec();
        path.extend_from_slice(hidden);
        match self.tree.resolve_entry(&path)? {
            Some(place) => make_whiteout(&place),
            None => Ok(()),
        }
    }

    fn unpack_directory(&mut self, place: TreeEntry, attributes: &Attributes) -> Result<(), Failure> {
        if make_directory(&mut self.tree, &place)? {
            send_report(&Report::Opaque { path: place.path.clone() })?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory: OwnedFd = openat(&place.parent, &place.name, flags, Mode::empty())?;
        attributes.apply_to(&directory)?;
        if self.directories.len() >= MAX_REMEMBERED {
            self.set_directory_times()?;
        }
        self.directories.push((place.path, attributes.changed.clone()));
        Ok(())
    }

    fn unpack_file<R: Read>(
        &mut self,
        contents: &mut Entries<R>,
        place: &TreeEntry,
        attributes: &Attributes,
    ) -> Result<(), Failure> {
        self.tree.clear_entry(place)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&place.parent, &place.name, flags, Mode::RUSR | Mode::WUSR)?);
        let mut size = 0;
        loop {
            let length = match contents.read(&mut self.piece).map_err(archive_error)? {
                0 => break,
                length => length as u64,
            };
            // Space is counted before it is used.
            let more = (size + length).next_multiple_of(BLOCK) - size.next_multiple_of(BLOCK);
            self.tree.record_growth(0, more)?;
            size += length;
            file.write_all(&self.piece[..length as usize])?;
        }
        attributes.apply_to(&file)
    }

    fn unpack_hard_link(&mut self, place: &TreeEntry, target: &[u8]) -> Result<(), Failure> {
        let missing = || {
            Failure::Unfit(format!("{} in it is a link to a file that it does not have", printable_path(&place.path)))
        };
        let target = self.tree.find_entry(target)?.ok_or_else(missing)?;
        if target.path == place.path {
            return Ok(());
        }
        self.tree.clear_entry(place)?;
        match linkat(&target.parent, &target.name, &place.parent, &place.name, AtFlags::empty()) {
            Err(Errno::NOENT | Errno::PERM) => Err(missing()),
            done => Ok(done?),
        }
    }

    /// Sets the times of the directories, which adding entries has changed.
    fn set_directory_times(&mut self) -> Result<(), Failure> {
        for (path, times) in std::mem::take(&mut self.directories) {
            if let Some(place) = self.tree.find_entry(&path)? {
                match utimensat(&place.parent, &place.name, &times, AtFlags::SYMLINK_NOFOLLOW) {
                    // It was replaced by something else.
                    Err(Errno::NOENT) => {}
                    done => done?,
                }
            }
        }
        Ok(())
    }
}

/// Returns whether the archive caused an error, and not the host.
fn is_archive_fault(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    !matches!(
        code,
        None | Some(Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::ROFS)
    )
}
