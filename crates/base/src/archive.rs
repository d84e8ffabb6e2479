//! Reads tar archives of unknown origin, in bounded memory: headers, with the extension headers that precede them.
//!
//! [`Headers`] turns blocks into entries, without IO; [`Entries`] reads them from a stream. Which kinds and paths are
//! allowed is the rule of each user. PAX records are delimited by their lengths, because the value of an extended
//! attribute may contain any byte, also a newline.

#[cfg(test)]
mod tests;

use std::io::{self, Read};

pub use tar::{EntryType, Header};

/// The block size of archives.
pub const BLOCK: usize = 512;

/// A PAX record: its key and its value.
pub type Record = (Vec<u8>, Vec<u8>);

/// One entry of an archive.
#[derive(Debug)]
pub struct Entry {
    /// `GNUSparse` for every form of sparse file: holes cost an archive nothing, but unpacking much.
    pub kind: EntryType,
    pub path: Vec<u8>,
    /// The target of a link.
    pub link: Vec<u8>,
    /// The size of the contents, which follow and are padded to whole blocks.
    pub size: u64,
    pub header: Header,
    /// Its PAX records, in order.
    pub records: Vec<Record>,
}

/// What a block completed.
#[derive(Debug)]
pub enum Parsed {
    Nothing,
    Entry(Box<Entry>),
    /// A block of zeros: the archive ends.
    End,
}

type Result<T> = std::result::Result<T, &'static str>;

/// The parser of headers; its errors say what is wrong with the archive.
#[derive(Debug)]
pub struct Headers {
    max_extension: u64,
    /// The extension header that is being collected: its type, its size, and what has arrived.
    extension: Option<(EntryType, usize, Vec<u8>)>,
    /// What extension headers say about the next entry.
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    records: Option<Vec<Record>>,
}

impl Headers {
    /// Creates a parser; the contents of an extension header are held in memory up to this size.
    pub fn new(max_extension: u64) -> Self {
        Headers { max_extension, extension: None, name: None, link: None, records: None }
    }

    /// Takes the next block. The caller skips the contents of entries.
    pub fn push(&mut self, block: &[u8; BLOCK]) -> Result<Parsed> {
        if let Some((kind, size, mut data)) = self.extension.take() {
            data.extend_from_slice(&block[..BLOCK.min(size - data.len())]);
            return self.collect_extension(kind, size, data);
        }
        if block.iter().all(|byte| *byte == 0) {
            return self.finish();
        }
        // The checksum field itself counts as blanks.
        let sum: u32 = block[..148].iter().chain(&[b' '; 8]).chain(&block[156..]).map(|byte| u32::from(*byte)).sum();
        let header = Header::from_byte_slice(block);
        if header.cksum().ok() != Some(sum) {
            return Err("it is not a tar archive, or is damaged: the checksum of an entry is wrong");
        }
        let size = header.entry_size().map_err(|_| "the size of an entry is not a number")?;
        let is_known = header.as_gnu().is_some() || header.as_ustar().is_some();
        match header.entry_type() {
            kind @ (EntryType::GNULongName | EntryType::GNULongLink | EntryType::XHeader) if is_known => {
                self.begin_extension(kind, size)
            }
            EntryType::XGlobalHeader => self.begin_extension(EntryType::XGlobalHeader, size),
            kind => self.complete_entry(kind, size, header),
        }
    }

    /// Checks that the archive may end here.
    fn finish(&self) -> Result<Parsed> {
        match (&self.extension, &self.name, &self.link, &self.records) {
            (None, None, None, None) => Ok(Parsed::End),
            _ => Err("it ends after an extension header"),
        }
    }

    fn begin_extension(&mut self, kind: EntryType, size: u64) -> Result<Parsed> {
        if size > self.max_extension {
            return Err("a name or the PAX records of an entry are too long");
        }
        self.collect_extension(kind, size as usize, Vec::new())
    }

    fn collect_extension(&mut self, kind: EntryType, size: usize, data: Vec<u8>) -> Result<Parsed> {
        if data.len() < size {
            self.extension = Some((kind, size, data));
            return Ok(Parsed::Nothing);
        }
        let until_nul = || data.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        match kind {
            EntryType::GNULongName => set_once(&mut self.name, until_nul())?,
            EntryType::GNULongLink => set_once(&mut self.link, until_nul())?,
            EntryType::XHeader => set_once(&mut self.records, parse_records(&data)?)?,
            _ if parse_records(&data)?.iter().any(|(key, _)| is_about_one_entry(key)) => {
                return Err("a global header gives all entries the same path or size");
            }
            _ => {}
        }
        Ok(Parsed::Nothing)
    }

    fn complete_entry(&mut self, kind: EntryType, size: u64, header: &Header) -> Result<Parsed> {
        let records = self.records.take().unwrap_or_default();
        let size = match last_value(&records, b"size") {
            None => size,
            Some(text) => {
                let size = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
                size.ok_or("the size of an entry is not a number")?
            }
        };
        let known =
            |name: Option<Vec<u8>>, key| name.filter(|name| !name.is_empty()).or_else(|| last_value(&records, key));
        let path = known(self.name.take(), b"path").unwrap_or_else(|| header.path_bytes().into_owned());
        let link = known(self.link.take(), b"linkpath");
        let link = link.unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned());
        let is_sparse = records.iter().any(|(key, _)| key.starts_with(SPARSE));
        let kind = if is_sparse { EntryType::GNUSparse } else { kind };
        Ok(Parsed::Entry(Box::new(Entry { kind, path, link, size, header: header.clone(), records })))
    }
}

/// An archive that is read from a stream. Its `Read` reads the contents of the last entry.
#[derive(Debug)]
pub struct Entries<R> {
    input: R,
    headers: Headers,
    /// How much of the contents of the last entry is unread, and the padding after it.
    left: u64,
    padding: u64,
}

impl<R: Read> Entries<R> {
    /// Reads an archive with this limit of an extension header.
    pub fn new(input: R, max_extension: u64) -> Self {
        Entries { input, headers: Headers::new(max_extension), left: 0, padding: 0 }
    }

    /// Returns the input, which may hold more behind the end of the archive.
    pub fn into_inner(self) -> R {
        self.input
    }

    /// Returns the next entry; unread contents of the previous one are skipped. `None` at a block of zeros, or at the
    /// end of the input.
    pub fn next_entry(&mut self) -> io::Result<Option<Entry>> {
        for amount in [std::mem::take(&mut self.left), std::mem::take(&mut self.padding)] {
            if io::copy(&mut (&mut self.input).take(amount), &mut io::sink())? < amount {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        loop {
            let mut block = [0; BLOCK];
            let parsed = if self.read_block(&mut block)? { self.headers.push(&block) } else { self.headers.finish() };
            match parsed.map_err(io::Error::other)? {
                Parsed::Nothing => {}
                Parsed::End => return Ok(None),
                Parsed::Entry(entry) => {
                    self.left = entry.size;
                    self.padding = (BLOCK as u64 - entry.size % BLOCK as u64) % BLOCK as u64;
                    return Ok(Some(*entry));
                }
            }
        }
    }

    /// Reads a block; `false` at the end of the input.
    fn read_block(&mut self, block: &mut [u8; BLOCK]) -> io::Result<bool> {
        let mut length = 0;
        while length < BLOCK {
            match self.input.read(&mut block[length..])? {
                0 if length == 0 => return Ok(false),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => length += more,
            }
        }
        Ok(true)
    }
}

impl<R: Read> Read for Entries<R> {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(piece.len());
        if most == 0 {
            // A decompressor may treat an empty buffer as an error.
            return Ok(0);
        }
        let length = self.input.read(&mut piece[..most])?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= length as u64;
        Ok(length)
    }
}

/// The prefix of the PAX records of sparse files.
const SPARSE: &[u8] = b"GNU.sparse.";

fn is_about_one_entry(key: &[u8]) -> bool {
    matches!(key, b"path" | b"linkpath" | b"size") || key.starts_with(SPARSE)
}

/// Parses records of the form `length key=value` and a newline, where the length is that of the whole record.
fn parse_records(mut text: &[u8]) -> Result<Vec<Record>> {
    let mut all = Vec::new();
    while !text.is_empty() {
        let (record, rest) = split_record(text).ok_or("its PAX records are invalid")?;
        all.push(record);
        text = rest;
    }
    Ok(all)
}

fn split_record(text: &[u8]) -> Option<(Record, &[u8])> {
    let blank = text.iter().take(20).position(|byte| *byte == b' ')?;
    let digits = std::str::from_utf8(&text[..blank]).ok()?;
    let length: usize = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    let record = text.get(blank + 1..length)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
    Some(((record[..equals].to_vec(), record[equals + 1..].to_vec()), &text[length..]))
}

/// Returns the last value of a key; an empty value counts as absent.
fn last_value(records: &[Record], key: &[u8]) -> Option<Vec<u8>> {
    let last = records.iter().rfind(|(name, _)| name == key);
    last.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
}

fn set_once<T>(known: &mut Option<T>, new: T) -> Result<()> {
    match known.replace(new) {
        None => Ok(()),
        Some(_) => Err("it has two extension headers of a kind before an entry"),
    }
}
