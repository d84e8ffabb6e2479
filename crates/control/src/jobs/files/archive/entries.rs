//! Checks the entries of a decompressed tar archive; their contents are skipped.
//!
//! Links are not followed here. They stay inside the archive all the same: no entry may lie beneath a link, so the
//! directories of a path are real ones, and `..` occurs only at the beginning of a link's target.

use std::collections::HashSet;
use std::io::{self, Write};

use tarn_base::archive::{BLOCK, Entry, EntryType, Headers, Parsed};

use super::paths::{check_link_target, display_path, hash_path, split_path};
use super::{ArchiveError, FREE_RATIO_BYTES, Limits, MAX_RATIO};

/// How long an extension header may be.
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
    headers: Headers,
    /// A block of headers, and how much of it has arrived.
    block: [u8; BLOCK],
    filled: usize,
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
    /// Only zeros may follow.
    End,
}

impl EntryChecker {
    pub(super) fn new(limits: Limits) -> Self {
        EntryChecker {
            limits,
            state: State::Header,
            headers: Headers::new(MAX_EXTENSION),
            block: [0; BLOCK],
            filled: 0,
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

    /// Refuses an archive whose contents are much larger than its compressed bytes: they would cost the engine and
    /// the node far more than they cost the sender.
    pub(super) fn check_ratio(&self, packed: u64) -> Result<()> {
        let allowed = FREE_RATIO_BYTES.max(packed.saturating_mul(MAX_RATIO));
        if self.raw <= allowed {
            return Ok(());
        }
        Err(ArchiveError::TooLarge(format!(
            "its files are more than {MAX_RATIO} times larger than the archive; leave out files of zeros by `ignore`, or \
             create them in the job"
        )))
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
                State::Header | State::MaybeEnd => self.collect_block(data)?,
                State::Contents { left } => {
                    let skipped = data.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= skipped as u64;
                    if *left == 0 {
                        self.state = State::Header;
                    }
                    &data[skipped..]
                }
                State::End if data.iter().all(|byte| *byte == 0) => &[],
                State::End => return Err(invalid("data follows after its end")),
            };
        }
        Ok(())
    }

    /// Collects a block, and checks it when it is complete. Returns the bytes after it.
    fn collect_block<'d>(&mut self, data: &'d [u8]) -> Result<&'d [u8]> {
        let taken = data.len().min(BLOCK - self.filled);
        self.block[self.filled..][..taken].copy_from_slice(&data[..taken]);
        self.filled = (self.filled + taken) % BLOCK;
        if self.filled == 0 {
            match (self.headers.push(&self.block).map_err(invalid)?, &self.state) {
                (Parsed::End, State::MaybeEnd) => self.state = State::End,
                (Parsed::End, _) => self.state = State::MaybeEnd,
                (_, State::MaybeEnd) => return Err(invalid("an entry follows after its end")),
                (Parsed::Entry(entry), _) => self.check_entry(&entry)?,
                (Parsed::Nothing, _) => {}
            }
        }
        Ok(&data[taken..])
    }

    fn check_entry(&mut self, entry: &Entry) -> Result<()> {
        let Entry { kind, path, link, size, .. } = entry;
        let (kind, size) = (*kind, *size);
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
                check_link_target(link, parts.len() - 1).map_err(|why| refused_entry(path, why))?;
                if self.links.len() >= MAX_LINKS {
                    return Err(ArchiveError::TooLarge(format!("a job may have at most {MAX_LINKS} symbolic links")));
                }
                self.links.insert(hash_path(&parts));
                false
            }
            EntryType::Link => {
                let target = split_path(link, false);
                let target =
                    target.map_err(|_| refused_entry(path, "is a hard link to something outside of the archive"))?;
                self.reject_symlink_ancestor(path, &target)?;
                false
            }
            EntryType::Char | EntryType::Block => return Err(refused_entry(path, "is a device")),
            EntryType::Fifo => return Err(refused_entry(path, "is a named pipe")),
            EntryType::GNUSparse => {
                return Err(invalid("it has sparse files; pack it without the option for sparse files"));
            }
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

fn refused_entry(path: &[u8], why: &str) -> ArchiveError {
    ArchiveError::Invalid(format!("{} {why}", display_path(path)))
}
