//! The entries of a tar archive, as they come out of the compression: each is looked at, and its contents are skipped.
//!
//! Links are followed by nobody here. That they stay inside is certain all the same: nothing may lie beneath a link, so the
//! directories of a path are real ones, and `..` stands only at the beginning of where a link points to.

use std::collections::HashSet;
use std::io::{self, Write};

use tar::{EntryType, Header, PaxExtensions};

use super::paths::{hash, parts, points_inside, shown};
use super::{Limits, Wrong};

const BLOCK: usize = 512;

/// How long the entry may be that says more about the next one.
const MAX_EXTRA: u64 = 1 << 20;

/// How many symbolic links there may be: each is kept in mind until the end.
const MAX_LINKS: usize = 100_000;

/// So much besides its contents an entry may need in the archive.
const OVERHEAD: u64 = 4096;

type Result<T> = std::result::Result<T, Wrong>;

/// What has been seen of the archive.
#[derive(Debug)]
pub(super) struct Entries {
    limits: Limits,
    state: State,
    /// A header, as far as it has come.
    block: Vec<u8>,
    /// What was said about the next entry.
    next: Next,
    /// Where symbolic links are, by the hash of their paths.
    links: HashSet<[u8; 16]>,
    entries: u64,
    unpacked: u64,
    /// How many bytes came in all.
    raw: u64,
    wrong: Option<Wrong>,
}

#[derive(Debug)]
enum State {
    /// A header comes.
    Header,
    /// A block of zeros came: another one is the end.
    MaybeEnd,
    /// Contents, which are skipped.
    Contents { left: u64 },
    /// An entry that says more about the next one, with what fills its last block.
    Extra { kind: EntryType, left: usize, filler: usize, data: Vec<u8> },
    /// Only zeros may come.
    End,
}

#[derive(Debug, Default)]
struct Next {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

impl Entries {
    pub(super) fn new(limits: Limits) -> Self {
        Entries {
            limits,
            state: State::Header,
            block: Vec::with_capacity(BLOCK),
            next: Next::default(),
            links: HashSet::new(),
            entries: 0,
            unpacked: 0,
            raw: 0,
            wrong: None,
        }
    }

    /// What was wrong, if something was.
    pub(super) fn wrong(&mut self) -> Option<Wrong> {
        self.wrong.clone()
    }

    /// Whether it has come to its end.
    pub(super) fn finish(&self) -> Result<()> {
        match self.state {
            State::End => Ok(()),
            _ => Err(invalid("it ends before its end; was it cut off?")),
        }
    }

    fn take(&mut self, mut data: &[u8]) -> Result<()> {
        self.raw += data.len() as u64;
        let Limits { files, unpacked_bytes } = self.limits;
        if self.raw > unpacked_bytes.saturating_add(files.saturating_mul(OVERHEAD)) {
            return Err(Wrong::TooLarge(format!("its files may have {unpacked_bytes} bytes together")));
        }
        while !data.is_empty() {
            data = match &mut self.state {
                State::Header | State::MaybeEnd => self.gather(data)?,
                State::Contents { left } => {
                    let skipped = data.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= skipped as u64;
                    if *left == 0 {
                        self.state = State::Header;
                    }
                    &data[skipped..]
                }
                State::Extra { .. } => self.extra(data)?,
                State::End if data.iter().all(|byte| *byte == 0) => &[],
                State::End => return Err(invalid("something follows after its end")),
            };
        }
        Ok(())
    }

    /// Gathers a header, and looks at it when it is there. Returns what was not needed.
    fn gather<'d>(&mut self, data: &'d [u8]) -> Result<&'d [u8]> {
        let taken = data.len().min(BLOCK - self.block.len());
        self.block.extend_from_slice(&data[..taken]);
        if self.block.len() == BLOCK {
            let block = std::mem::take(&mut self.block);
            match (block.iter().all(|byte| *byte == 0), &self.state) {
                (true, State::MaybeEnd) => self.state = State::End,
                (true, _) => self.state = State::MaybeEnd,
                (false, State::MaybeEnd) => return Err(invalid("an entry follows after its end")),
                (false, _) => self.header(Header::from_byte_slice(&block))?,
            }
            self.block = block;
            self.block.clear();
        }
        Ok(&data[taken..])
    }

    fn header(&mut self, header: &Header) -> Result<()> {
        // Where the sum itself stands, spaces are counted.
        let counted = |(at, byte): (usize, &u8)| u32::from(if (148..156).contains(&at) { b' ' } else { *byte });
        let sum: u32 = header.as_bytes().iter().enumerate().map(counted).sum();
        if header.cksum().ok() != Some(sum) {
            return Err(invalid("it is not a tar archive, or is damaged: the checksum of an entry is wrong"));
        }
        let size = header.entry_size().map_err(|_| invalid("the size of an entry is not a number"))?;
        let kind = header.entry_type();
        let is_extra = kind.is_gnu_longname() || kind.is_gnu_longlink();
        if is_extra || kind.is_pax_local_extensions() || kind.is_pax_global_extensions() {
            if size > MAX_EXTRA {
                return Err(invalid("what it says about an entry is longer than a megabyte"));
            }
            let (left, padded) = (size as usize, (size as usize).next_multiple_of(BLOCK));
            self.state = State::Extra { kind, left, filler: padded - left, data: Vec::new() };
            if padded == 0 {
                self.state = State::Header;
            }
            return Ok(());
        }
        let Next { path, link, size: said } = std::mem::take(&mut self.next);
        let path = path.unwrap_or_else(|| header.path_bytes().into_owned());
        let link = link.or_else(|| header.link_name_bytes().map(|link| link.into_owned()));
        self.entry(kind, &path, link.as_deref(), said.unwrap_or(size))
    }

    /// An entry that says more about the next one.
    fn extra<'d>(&mut self, bytes: &'d [u8]) -> Result<&'d [u8]> {
        let State::Extra { kind, left, filler, data } = &mut self.state else { return Ok(bytes) };
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
            self.told(kind, &data)?;
        }
        Ok(rest)
    }

    fn told(&mut self, kind: EntryType, data: &[u8]) -> Result<()> {
        let until_nul = || data.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        if kind.is_gnu_longname() {
            self.next.path = Some(until_nul());
        } else if kind.is_gnu_longlink() {
            self.next.link = Some(until_nul());
        } else {
            for record in PaxExtensions::new(data) {
                let record = record.map_err(|_| invalid("what it says about an entry cannot be understood"))?;
                let value = record.value_bytes();
                match record.key_bytes() {
                    b"path" | b"linkpath" | b"size" if kind.is_pax_global_extensions() => {
                        return Err(invalid("it gives all entries the same path or size"));
                    }
                    b"path" => self.next.path = Some(value.to_vec()),
                    b"linkpath" => self.next.link = Some(value.to_vec()),
                    b"size" => {
                        let size = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                        self.next.size = Some(size.ok_or_else(|| invalid("the size of an entry is not a number"))?);
                    }
                    key if key.starts_with(b"GNU.sparse.") => return Err(sparse()),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn entry(&mut self, kind: EntryType, path: &[u8], link: Option<&[u8]>, size: u64) -> Result<()> {
        self.entries += 1;
        if self.entries > self.limits.files {
            return Err(Wrong::TooLarge(format!("a job may have {} files", self.limits.files)));
        }
        self.unpacked = self.unpacked.saturating_add(size);
        if self.unpacked > self.limits.unpacked_bytes {
            let limit = self.limits.unpacked_bytes;
            return Err(Wrong::TooLarge(format!(
                "its files may have {limit} bytes together; {} goes beyond",
                shown(path)
            )));
        }
        let parts = parts(path, kind.is_dir()).map_err(|why| refused(path, why))?;
        if parts.is_empty() && !kind.is_dir() {
            return Err(refused(path, "has no name"));
        }
        // A link may take the place of another one; everything else would go through it.
        let above = if kind.is_symlink() { &parts[..parts.len() - 1] } else { &parts[..] };
        self.must_be_real(path, above)?;
        let has_contents = match kind {
            EntryType::Regular | EntryType::Continuous => true,
            EntryType::Directory => false,
            EntryType::Symlink => {
                points_inside(link.unwrap_or_default(), parts.len() - 1).map_err(|why| refused(path, why))?;
                if self.links.len() >= MAX_LINKS {
                    return Err(Wrong::TooLarge(format!("a job may have {MAX_LINKS} symbolic links")));
                }
                self.links.insert(hash(&parts));
                false
            }
            EntryType::Link => {
                let target = super::paths::parts(link.unwrap_or_default(), false);
                let target = target.map_err(|_| refused(path, "is a hard link to something outside of it"))?;
                self.must_be_real(path, &target)?;
                false
            }
            EntryType::Char | EntryType::Block => return Err(refused(path, "is a device")),
            EntryType::Fifo => return Err(refused(path, "is a named pipe")),
            EntryType::GNUSparse => return Err(sparse()),
            _ => return Err(refused(path, "is of a kind that is not known")),
        };
        if size > 0 && !has_contents {
            return Err(refused(path, "has contents, which a thing of its kind cannot have"));
        }
        let left = size.checked_next_multiple_of(BLOCK as u64).ok_or_else(|| refused(path, "is too large"))?;
        self.state = if left > 0 { State::Contents { left } } else { State::Header };
        Ok(())
    }

    /// Refuses what lies at or beneath a symbolic link.
    fn must_be_real(&self, path: &[u8], parts: &[&[u8]]) -> Result<()> {
        if self.links.is_empty() {
            return Ok(());
        }
        match (1..=parts.len()).any(|count| self.links.contains(&hash(&parts[..count]))) {
            true => Err(refused(path, "goes through a symbolic link")),
            false => Ok(()),
        }
    }
}

impl Write for Entries {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.wrong.is_none()
            && let Err(wrong) = self.take(data)
        {
            self.wrong = Some(wrong);
        }
        match &self.wrong {
            Some(_) => Err(io::Error::other("the archive is refused")),
            None => Ok(data.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn invalid(why: &str) -> Wrong {
    Wrong::Invalid(why.to_owned())
}

fn sparse() -> Wrong {
    invalid("it has files with holes in it; pack it without the option for sparse files")
}

fn refused(path: &[u8], why: &str) -> Wrong {
    Wrong::Invalid(format!("{} {why}", shown(path)))
}
