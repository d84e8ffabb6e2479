//! The archive of a layer, entry by entry: headers, with the long names and PAX records that precede them.
//!
//! PAX records are delimited by their lengths, because the value of an extended attribute may contain any byte, also a
//! newline.

use std::io::{self, Read};

use tar::{EntryType, Header};

use super::super::Failure;
use super::stream::archive_error;
use super::tree::unfit_archive;

/// The block size of archives.
const BLOCK: u64 = 512;

/// The maximum size of a name or of the PAX records of one entry.
const MAX_RECORDS: u64 = 4 << 20;

/// One entry of an archive.
pub(super) struct Entry {
    pub(super) header: Header,
    pub(super) path: Vec<u8>,
    /// The target of a link.
    pub(super) link: Vec<u8>,
    pub(super) notes: PaxRecords,
}

/// The PAX records of one entry, in order.
#[derive(Default)]
pub(super) struct PaxRecords(pub(super) Vec<(Vec<u8>, Vec<u8>)>);

/// An archive that is being read.
pub(super) struct Entries<R> {
    input: R,
    /// How much of the contents of the last entry is unread, and the padding after it.
    left: u64,
    padding: u64,
}

impl<R: Read> Entries<R> {
    pub(super) fn new(input: R) -> Self {
        Entries { input, left: 0, padding: 0 }
    }

    pub(super) fn into_inner(self) -> R {
        self.input
    }

    /// Returns the next entry; unread contents of the previous one are skipped.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Failure> {
        let (mut name, mut link, mut notes) = (None, None, None);
        loop {
            self.skip_contents()?;
            let Some(header) = self.read_header()? else {
                let is_end = name.is_none() && link.is_none() && notes.is_none();
                return if is_end { Ok(None) } else { Err(unfit_archive("it ends after an extension header")) };
            };
            let size = header.entry_size().map_err(archive_error)?;
            let is_known = header.as_gnu().is_some() || header.as_ustar().is_some();
            match header.entry_type() {
                EntryType::XGlobalHeader => self.begin_contents(size),
                EntryType::GNULongName if is_known => set_once(&mut name, self.read_name(size)?)?,
                EntryType::GNULongLink if is_known => set_once(&mut link, self.read_name(size)?)?,
                EntryType::XHeader if is_known => {
                    let read = PaxRecords::parse(&self.read_contents(size)?)
                        .ok_or_else(|| unfit_archive("its PAX records are invalid"))?;
                    set_once(&mut notes, read)?;
                }
                _ => {
                    let notes = notes.unwrap_or_default();
                    self.begin_contents(notes.size()?.unwrap_or(size));
                    let path =
                        name.or_else(|| notes.last_value(b"path")).unwrap_or_else(|| header.path_bytes().into_owned());
                    let plain = || header.link_name_bytes().unwrap_or_default().into_owned();
                    let link = link.or_else(|| notes.last_value(b"linkpath")).unwrap_or_else(plain);
                    return Ok(Some(Entry { header, path, link, notes }));
                }
            }
        }
    }

    /// Reads more of the contents of the last entry.
    pub(super) fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
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

    fn begin_contents(&mut self, size: u64) {
        self.left = size;
        self.padding = (BLOCK - size % BLOCK) % BLOCK;
    }

    fn skip_contents(&mut self) -> Result<(), Failure> {
        for amount in [std::mem::take(&mut self.left), std::mem::take(&mut self.padding)] {
            if io::copy(&mut (&mut self.input).take(amount), &mut io::sink()).map_err(archive_error)? < amount {
                return Err(archive_error(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Ok(())
    }

    /// Reads the next header; `None` at the end, which is a block of zeros or the end of the input.
    fn read_header(&mut self) -> Result<Option<Header>, Failure> {
        let mut header = Header::new_old();
        let mut length = 0;
        while length < BLOCK as usize {
            match self.input.read(&mut header.as_mut_bytes()[length..]).map_err(archive_error)? {
                0 if length == 0 => return Ok(None),
                0 => return Err(archive_error(io::ErrorKind::UnexpectedEof.into())),
                more => length += more,
            }
        }
        let bytes = header.as_bytes();
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        // The checksum field itself counts as blanks.
        let sum: u32 = bytes[..148].iter().chain(&[b' '; 8]).chain(&bytes[156..]).map(|byte| u32::from(*byte)).sum();
        if header.cksum().map_err(archive_error)? != sum {
            return Err(unfit_archive("a header in it has a wrong checksum"));
        }
        Ok(Some(header))
    }

    /// Reads the whole contents.
    fn read_contents(&mut self, size: u64) -> Result<Vec<u8>, Failure> {
        if size > MAX_RECORDS {
            return Err(unfit_archive("a name or the PAX records of an entry are too long"));
        }
        self.begin_contents(size);
        let mut all = vec![0; usize::try_from(size).unwrap_or_default()];
        let mut length = 0;
        while length < all.len() {
            length += self.read(&mut all[length..]).map_err(archive_error)?;
        }
        Ok(all)
    }

    /// Reads a name, which ends at its first zero byte.
    fn read_name(&mut self, size: u64) -> Result<Vec<u8>, Failure> {
        let mut text = self.read_contents(size)?;
        text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(text.len()));
        Ok(text)
    }
}

impl PaxRecords {
    /// Parses records of the form `length key=value` and a newline, where the length is that of the whole record.
    fn parse(mut text: &[u8]) -> Option<Self> {
        let mut all = Vec::new();
        while !text.is_empty() {
            let blank = text.iter().take(20).position(|byte| *byte == b' ')?;
            let digits = std::str::from_utf8(&text[..blank]).ok()?;
            let length: usize = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
            let record = text.get(blank + 1..length)?.strip_suffix(b"\n")?;
            let equals = record.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
            all.push((record[..equals].to_vec(), record[equals + 1..].to_vec()));
            text = &text[length..];
        }
        Some(PaxRecords(all))
    }

    /// Returns the last value of a key; an empty value counts as absent.
    fn last_value(&self, key: &[u8]) -> Option<Vec<u8>> {
        let last = self.0.iter().rfind(|(name, _)| name == key);
        last.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
    }

    fn size(&self) -> Result<Option<u64>, Failure> {
        let Some(text) = self.last_value(b"size") else { return Ok(None) };
        let size = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
        size.map(Some).ok_or_else(|| unfit_archive("its PAX records are invalid"))
    }
}

fn set_once<T>(known: &mut Option<T>, new: T) -> Result<(), Failure> {
    match known.replace(new) {
        None => Ok(()),
        Some(_) => Err(unfit_archive("it has two extension headers of a kind before an entry")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that rejects empty buffers, as a decompressor may.
    struct Asked<'a>(&'a [u8]);

    impl Read for Asked<'_> {
        fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
            assert!(!piece.is_empty());
            self.0.read(piece)
        }
    }

    fn notes(text: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        PaxRecords::parse(text).map(|notes| notes.0)
    }

    #[test]
    fn pax_records_are_delimited_by_length() {
        let one = (b"path".to_vec(), b"a".to_vec());
        assert_eq!(notes(b"10 path=a\n").unwrap(), std::slice::from_ref(&one));
        assert_eq!(notes(b"9 k=\n\0 =\n10 path=a\n").unwrap(), [(b"k".to_vec(), b"\n\0 =".to_vec()), one]);
        assert_eq!(notes(b"").unwrap(), []);
        let invalid: [&[u8]; 9] = [
            b"10 path=a",
            b"11 path=a\n",
            b"8 path=a\n",
            b"path=a\n",
            b"+9 path=a\n",
            b"3 \n",
            b"5 =a\n",
            b" ",
            b"99999999999999999999999 a=b\n",
        ];
        for invalid in invalid {
            assert_eq!(notes(invalid), None, "{:?}", String::from_utf8_lossy(invalid));
        }
        let last = PaxRecords::parse(b"10 path=a\n10 path=b\n8 path=\n").unwrap();
        assert_eq!(last.last_value(b"path"), None, "what is noted as nothing is not noted");
    }

    #[test]
    fn extension_headers_apply_to_the_next_entry() {
        let mut archive = tar::Builder::new(Vec::new());
        archive.append_pax_extensions([("size", b"3".as_slice()), ("user", b"a\nb")]).unwrap();
        let mut header = Header::new_ustar();
        header.set_size(0);
        header.set_cksum();
        archive.append(&header, &b""[..]).unwrap();
        let mut bytes = archive.into_inner().unwrap();
        bytes.truncate(bytes.len() - 1024);
        bytes.extend_from_slice(b"abc");
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        let mut long = tar::Builder::new(Vec::new());
        let mut header = Header::new_gnu();
        header.set_size(1);
        long.append_data(&mut header, "n/".repeat(200), &b"x"[..]).unwrap();
        bytes.extend(long.into_inner().unwrap());
        let mut entries = Entries::new(Asked(&bytes));
        let first = entries.next().ok().flatten().unwrap();
        assert_eq!(first.notes.last_value(b"user").unwrap(), b"a\nb");
        let mut piece = [0; 10];
        assert_eq!((entries.read(&mut piece).unwrap(), &piece[..3]), (3, b"abc".as_slice()));
        assert_eq!(entries.read(&mut piece).unwrap(), 0);
        let second = entries.next().ok().flatten().unwrap();
        assert!(second.path.starts_with(&b"n/".repeat(199)));
        assert!(entries.next().ok().flatten().is_none());
    }
}
