//! Checks the entries of a decompressed tar archive; their contents are skipped.
//!
//! Links are not followed here. They stay inside the archive all the same: no entry may lie beneath a link, so the
//! directories of a path are real ones, and `..` occurs only at the beginning of a link's target.

use std::collections::HashSet;
use std::io::{self, Write};

use tar::{EntryType, Header, PaxExtensions};

use super::paths::{check_link_target, display_path, hash_path, split_path};
use super::{ArchiveError, Limits};

const BLOCK: usize = 512;

/// How long an extension entry may be.
const MAX_EXTENSION: u64 = 1 << 20;

/// How many symbolic links an archive may have: each is remembered until the end.
const MAX_LINKS: usize = 100_000;

/// How many bytes an entry may need in the archive besides its contents.
const OVERHEAD: u64 = 4096;

type Result<T> = std::result::Result<T, ArchiveError>;

/// The state of the check.
#[derive(Debug)]
pub(super) struct EntryChecker {
    limits: Limits,
    state: State,
    /// The part of a header that has arrived.
    block: Vec<u8>,
    /// What extension entries say about the next entry.
    next: NextEntry,
    /// The symbolic links, by the hashes of their paths.
    links: HashSet<[u8; 16]>,
    entries: u64,
    unpacked: u64,
    /// How many bytes have arrived in total.
    raw: u64,
    error: Option<ArchiveError>,
}

#[derive(Debug)]
enum State {
    /// A header follows.
    Header,
    /// A block of zeros has arrived: a second one is the end.
    MaybeEnd,
    Contents {
        left: u64,
    },
    /// An extension entry, and the padding of its last block.
    Extension {
        kind: EntryType,
        left: usize,
        filler: usize,
        data: Vec<u8>,
    },
    /// Only zeros may follow.
    End,
}

#[derive(Debug, Default)]
struct NextEntry {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

impl EntryChecker {
    pub(super) fn new(limits: Limits) -> Self {
        EntryChecker {
            limits,
            state: State::Header,
            block: Vec::with_capacity(BLOCK),
            next: NextEntry::default(),
            links: HashSet::new(),
            entries: 0,
            unpacked: 0,
            raw: 0,
            error: None,
        }
    }

    /// Returns what is wrong with the archive, if anything.
    pub(super) fn first_error(&mut self) -> Option<ArchiveError> {
        self.error.clone()
    }

    /// Checks that the archive is complete.
    pub(super) fn finish(&self) -> Result<()> {
        match self.state {
            State::End => Ok(()),
            _ => Err(invalid("it is incomplete; was it cut off?")),
        }
    }

    fn check_bytes(&mut self, mut data: &[u8]) -> Result<()> {
        self.raw += data.len() as u64;
        let Limits { files, unpacked_bytes } = self.limits;
        if self.raw > unpacked_bytes.saturating_add(files.saturating_mul(OVERHEAD)) {
            return Err(ArchiveError::TooLarge(format!("its files may have at most {unpacked_bytes} bytes in total")));
        }
        while !data.is_empty() {
            data = match &mut self.state {
                State::Header | State::MaybeEnd => self.collect_header(data)?,
                State::Contents { left } => {
                    let skipped = data.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= skipped as u64;
                    if *left == 0 {
                        self.state = State::Header;
                    }
                    &data[skipped..]
                }
                State::Extension { .. } => self.collect_extension(data)?,
                State::End if data.iter().all(|byte| *byte == 0) => &[],
                State::End => return Err(invalid("data follows after its end")),
            };
        }
        Ok(())
    }

    /// Collects a header, and checks it when it is complete. Returns the bytes after it.
    fn collect_header<'d>(&mut self, data: &'d [u8]) -> Result<&'d [u8]> {
        let taken = data.len().min(BLOCK - self.block.len());
        self.block.extend_from_slice(&data[..taken]);
        if self.block.len() == BLOCK {
            let block = std::mem::take(&mut self.block);
            match (block.iter().all(|byte| *byte == 0), &self.state) {
                (true, State::MaybeEnd) => self.state = State::End,
                (true, _) => self.state = State::MaybeEnd,
                (false, State::MaybeEnd) => return Err(invalid("an entry follows after its end")),
                (false, _) => self.check_header(Header::from_byte_slice(&block))?,
            }
            self.block = block;
            self.block.clear();
        }
        Ok(&data[taken..])
    }

    fn check_header(&mut self, header: &Header) -> Result<()> {
        // The checksum field itself counts as spaces.
        let counted = |(at, byte): (usize, &u8)| u32::from(if (148..156).contains(&at) { b' ' } else { *byte });
        let sum: u32 = header.as_bytes().iter().enumerate().map(counted).sum();
        if header.cksum().ok() != Some(sum) {
            return Err(invalid("it is not a tar archive, or is damaged: the checksum of an entry is wrong"));
        }
        let size = header.entry_size().map_err(|_| invalid("the size of an entry is not a number"))?;
        let kind = header.entry_type();
        let is_gnu_extension = kind.is_gnu_longname() || kind.is_gnu_longlink();
        if is_gnu_extension || kind.is_pax_local_extensions() || kind.is_pax_global_extensions() {
            if size > MAX_EXTENSION {
                return Err(invalid("an extension header is longer than a megabyte"));
            }
            let (left, padded) = (size as usize, (size as usize).next_multiple_of(BLOCK));
            self.state = State::Extension { kind, left, filler: padded - left, data: Vec::new() };
            if padded == 0 {
                self.state = State::Header;
            }
            return Ok(());
        }
        let NextEntry { path, link, size: extended_size } = std::mem::take(&mut self.next);
        let path = path.unwrap_or_else(|| header.path_bytes().into_owned());
        let link = link.or_else(|| header.link_name_bytes().map(|link| link.into_owned()));
        self.check_entry(kind, &path, link.as_deref(), extended_size.unwrap_or(size))
    }

    /// Collects an extension entry. Returns the bytes after it.
    fn collect_extension<'d>(&mut self, bytes: &'d [u8]) -> Result<&'d [u8]> {
        let State::Extension { kind, left, filler, data } = &mut self.state else { return Ok(bytes) };
        let taken = bytes.len().min(*left);
        data.extend_from_slice(&bytes[..taken]);
        *left -= taken;
        let filled = (bytes.len() - taken).min(*filler);
        if *left == 0 {
            *filler -= filled;
        }
        let rest = if *left == 0 { &bytes[taken + filled..] } else { &bytes[taken..] };
        if *left == 0 && *filler == 0 {
            let (kind, data) = (*kind, std::mem::take(data));
            self.state = State::Header;
            self.apply_extension(kind, &data)?;
        }
        Ok(rest)
    }

    fn apply_extension(&mut self, kind: EntryType, data: &[u8]) -> Result<()> {
        let until_nul = || data.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        if kind.is_gnu_longname() {
            self.next.path = Some(until_nul());
        } else if kind.is_gnu_longlink() {
            self.next.link = Some(until_nul());
        } else {
            for record in PaxExtensions::new(data) {
                let record = record.map_err(|_| invalid("an extension header is invalid"))?;
                let value = record.value_bytes();
                match record.key_bytes() {
                    b"path" | b"linkpath" | b"size" if kind.is_pax_global_extensions() => {
                        return Err(invalid("a global header gives all entries the same path or size"));
                    }
                    b"path" => self.next.path = Some(value.to_vec()),
                    b"linkpath" => self.next.link = Some(value.to_vec()),
                    b"size" => {
                        let size = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                        self.next.size = Some(size.ok_or_else(|| invalid("the size of an entry is not a number"))?);
                    }
                    key if key.starts_with(b"GNU.sparse.") => return Err(sparse_refused()),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn check_entry(&mut self, kind: EntryType, path: &[u8], link: Option<&[u8]>, size: u64) -> Result<()> {
        self.entries += 1;
        if self.entries > self.limits.files {
            return Err(ArchiveError::TooLarge(format!("a job may have at most {} files", self.limits.files)));
        }
        self.unpacked = self.unpacked.saturating_add(size);
        if self.unpacked > self.limits.unpacked_bytes {
            let limit = self.limits.unpacked_bytes;
            return Err(ArchiveError::TooLarge(format!(
                "its files may have at most {limit} bytes in total; {} exceeds that",
                display_path(path)
            )));
        }
        let parts = split_path(path, kind.is_dir()).map_err(|why| refused_entry(path, why))?;
        if parts.is_empty() && !kind.is_dir() {
            return Err(refused_entry(path, "has no name"));
        }
        // A link may replace another link; every other entry would be written through it.
        let above = if kind.is_symlink() { &parts[..parts.len() - 1] } else { &parts[..] };
        self.reject_symlink_ancestor(path, above)?;
        let has_contents = match kind {
            EntryType::Regular | EntryType::Continuous => true,
            EntryType::Directory => false,
            EntryType::Symlink => {
                check_link_target(link.unwrap_or_default(), parts.len() - 1).map_err(|why| refused_entry(path, why))?;
                if self.links.len() >= MAX_LINKS {
                    return Err(ArchiveError::TooLarge(format!("a job may have at most {MAX_LINKS} symbolic links")));
                }
                self.links.insert(hash_path(&parts));
                false
            }
            EntryType::Link => {
                let target = split_path(link.unwrap_or_default(), false);
                let target =
                    target.map_err(|_| refused_entry(path, "is a hard link to something outside of the archive"))?;
                self.reject_symlink_ancestor(path, &target)?;
                false
            }
            EntryType::Char | EntryType::Block => return Err(refused_entry(path, "is a device")),
            EntryType::Fifo => return Err(refused_entry(path, "is a named pipe")),
            EntryType::GNUSparse => return Err(sparse_refused()),
            _ => return Err(refused_entry(path, "has an unknown type")),
        };
        if size > 0 && !has_contents {
            return Err(refused_entry(path, "has contents, which its type does not allow"));
        }
        let left = size.checked_next_multiple_of(BLOCK as u64).ok_or_else(|| refused_entry(path, "is too large"))?;
        self.state = if left > 0 { State::Contents { left } } else { State::Header };
        Ok(())
    }

    /// Refuses a path that is a symbolic link or lies beneath one.
    fn reject_symlink_ancestor(&self, path: &[u8], parts: &[&[u8]]) -> Result<()> {
        if self.links.is_empty() {
            return Ok(());
        }
        if (1..=parts.len()).any(|count| self.links.contains(&hash_path(&parts[..count]))) {
            Err(refused_entry(path, "goes through a symbolic link"))
        } else {
            Ok(())
        }
    }
}

impl Write for EntryChecker {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.error.is_none()
            && let Err(error) = self.check_bytes(data)
        {
            self.error = Some(error);
        }
        match &self.error {
            Some(_) => Err(io::Error::other("the archive is refused")),
            None => Ok(data.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn invalid(why: &str) -> ArchiveError {
    ArchiveError::Invalid(why.to_owned())
}

fn sparse_refused() -> ArchiveError {
    invalid("it has sparse files; pack it without the option for sparse files")
}

fn refused_entry(path: &[u8], why: &str) -> ArchiveError {
    ArchiveError::Invalid(format!("{} {why}", display_path(path)))
}
