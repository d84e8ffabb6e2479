//! A local file as it is stored in a bucket: its data one after another. The holes of a volume, most of it, are left
//! out, and the ranges of its data are an object of their own.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::objects::new_file;
use crate::backup::parts::volumes::data_ranges;

/// Where the data of a file is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Layout {
    /// The size of the file, with its holes.
    pub(super) bytes: u64,
    /// The offsets and lengths of its data, in order.
    pub(super) ranges: Vec<(u64, u64)>,
}

/// A file that is read to be stored.
#[derive(Clone)]
pub(super) struct Source {
    file: Arc<File>,
    pub(super) layout: Layout,
}

impl Layout {
    /// How many bytes are stored.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.ranges.iter().map(|(_, length)| length).sum()
    }

    /// Parses a layout. It may come from elsewhere.
    pub(super) fn parse(text: &[u8]) -> io::Result<Layout> {
        let layout: Layout = serde_json::from_slice(text).map_err(io::Error::other)?;
        let mut end = 0;
        for (from, length) in &layout.ranges {
            let next = from.checked_add(*length).filter(|next| *from >= end && *next <= layout.bytes);
            end = next.ok_or_else(|| io::Error::other("the ranges of a volume are not in order"))?;
        }
        Ok(layout)
    }
}

impl Source {
    /// A file with everything in it.
    pub(super) fn whole(path: &Path) -> io::Result<Source> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Source { file: Arc::new(file), layout: Layout { bytes, ranges: vec![(0, bytes)] } })
    }

    /// A file without its holes.
    pub(super) fn sparse(path: &Path) -> io::Result<Source> {
        let file = File::open(path)?;
        let (bytes, ranges) = (file.metadata()?.len(), data_ranges(&file)?);
        Ok(Source { file: Arc::new(file), layout: Layout { bytes, ranges } })
    }

    /// Reads a part of what is stored.
    pub(super) async fn read(&self, at: u64, length: u64) -> io::Result<Bytes> {
        let source = self.clone();
        let read = tokio::task::spawn_blocking(move || source.read_now(at, length)).await;
        read.map_err(io::Error::other)?
    }

    fn read_now(&self, at: u64, length: u64) -> io::Result<Bytes> {
        let mut content = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        let (mut filled, mut skipped) = (0, 0);
        for (from, size) in &self.layout.ranges {
            let wanted = at + filled as u64;
            if filled < content.len() && wanted < skipped + size {
                let inside = wanted - skipped;
                let take = (size - inside).min((content.len() - filled) as u64) as usize;
                self.file.read_exact_at(&mut content[filled..filled + take], from + inside)?;
                filled += take;
            }
            skipped += size;
        }
        if filled == content.len() { Ok(content.into()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// Receives what is stored, piece by piece, and calls a function with the file as it was, holes too.
pub(super) struct Unpacked<F> {
    layout: Layout,
    range: usize,
    /// How much of the range was received, and how much of the file was passed on.
    received: u64,
    passed: u64,
    each: F,
}

/// What a file consists of.
pub(super) enum Piece<'a> {
    Data(&'a [u8]),
    Hole(u64),
}

impl<F: FnMut(Piece<'_>) -> io::Result<()>> Unpacked<F> {
    pub(super) fn new(layout: Layout, each: F) -> Self {
        Unpacked { layout, range: 0, received: 0, passed: 0, each }
    }

    /// Receives the next piece.
    pub(super) fn receive(&mut self, mut piece: &[u8]) -> io::Result<()> {
        while !piece.is_empty() {
            let Some((from, length)) = self.layout.ranges.get(self.range).copied() else {
                return Err(io::Error::other("it has more data than its ranges"));
            };
            self.skip_to(from)?;
            let take = piece.len().min(usize::try_from(length - self.received).unwrap_or(usize::MAX));
            let (now, rest) = piece.split_at(take);
            (self.each)(Piece::Data(now))?;
            (piece, self.received, self.passed) = (rest, self.received + take as u64, self.passed + take as u64);
            if self.received == length {
                (self.range, self.received) = (self.range + 1, 0);
            }
        }
        Ok(())
    }

    /// Ends the file, and returns its size.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        if self.layout.ranges[self.range.min(self.layout.ranges.len())..].iter().any(|(_, length)| *length > 0) {
            return Err(io::Error::other("it has less data than its ranges"));
        }
        self.skip_to(self.layout.bytes)?;
        Ok(self.layout.bytes)
    }

    fn skip_to(&mut self, at: u64) -> io::Result<()> {
        if self.received == 0 && at > self.passed {
            (self.each)(Piece::Hole(at - self.passed))?;
            self.passed = at;
        }
        Ok(())
    }
}

/// Writes a file with its holes.
pub(super) struct SparseFile(File);

impl SparseFile {
    pub(super) fn create(path: &Path) -> io::Result<SparseFile> {
        new_file(path).map(SparseFile)
    }

    pub(super) fn write(&mut self, piece: Piece<'_>) -> io::Result<()> {
        match piece {
            Piece::Data(data) => self.0.write_all(data),
            Piece::Hole(length) => {
                self.0.seek(SeekFrom::Current(i64::try_from(length).map_err(io::Error::other)?)).map(drop)
            }
        }
    }

    pub(super) fn finish(self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)?;
        self.0.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with holes is stored without them, and is the same file again.
    #[tokio::test]
    async fn holes_are_left_out() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        let mut file = File::create(&from).unwrap();
        file.seek(SeekFrom::Start(8 << 20)).unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        file.seek(SeekFrom::Start(64 << 20)).unwrap();
        file.write_all(&[8; 100_000]).unwrap();
        file.set_len(128 << 20).unwrap();
        let source = Source::sparse(&from).unwrap();
        let stored = source.layout.stored_bytes();
        assert!((200_000..4 << 20).contains(&stored), "{stored}");
        let layout = Layout::parse(&serde_json::to_vec(&source.layout).unwrap()).unwrap();
        let mut written = SparseFile::create(&to).unwrap();
        let mut unpacked = Unpacked::new(layout, |piece| written.write(piece));
        // Pieces do not end where ranges do.
        let mut at = 0;
        while at < stored {
            let length = 70_001.min(stored - at);
            unpacked.receive(&source.read(at, length).await.unwrap()).unwrap();
            at += length;
        }
        let bytes = unpacked.finish().unwrap();
        written.finish(bytes).unwrap();
        assert!(std::fs::read(&from).unwrap() == std::fs::read(&to).unwrap());
        assert!(source.read(stored - 1, 2).await.is_err(), "there is no more");
    }

    /// A layout from elsewhere that makes no sense is refused.
    #[test]
    fn layouts_are_checked() {
        for wrong in [
            r#"{"bytes":5,"ranges":[[0,6]]}"#,
            r#"{"bytes":9,"ranges":[[4,2],[5,1]]}"#,
            r#"{"bytes":9,"ranges":[[1,18446744073709551615]]}"#,
        ] {
            assert!(Layout::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let layout = Layout::parse(br#"{"bytes":9,"ranges":[[4,2]]}"#).unwrap();
        let mut short = Unpacked::new(layout.clone(), |_| Ok(()));
        short.receive(b"x").unwrap();
        assert!(short.finish().is_err());
        assert!(Unpacked::new(layout, |_| Ok(())).receive(b"xyz").is_err());
    }
}
