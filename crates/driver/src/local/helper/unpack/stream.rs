//! The uncompressed bytes of a layer: decompressed, counted, hashed.

use std::io::{self, BufReader, Read};

use sha2::{Digest, Sha256};

use super::super::Failure;

/// The read size: larger than the buffer of the standard input, which is thereby bypassed.
const PIECE: usize = 256 << 10;

/// The largest zstd window, as a power of two: images are usually compressed with 8 MiB, and 32 MiB fit into the memory
/// limit.
const MAX_WINDOW: u32 = 25;

/// The uncompressed stream of a layer.
pub(super) struct LayerStream<'a> {
    inner: Box<dyn Read + 'a>,
    sum: Sha256,
    left: u64,
}

impl<'a> LayerStream<'a> {
    /// Detects the compression by the first bytes. No more than `most` bytes come out.
    pub(super) fn new(input: impl Read + 'a, most: u64) -> io::Result<Self> {
        let mut input = BufReader::with_capacity(PIECE, input);
        // A single read may return one byte, so it is repeated.
        let mut first = [0; 4];
        let mut length = 0;
        while length < first.len() {
            match input.read(&mut first[length..])? {
                0 => break,
                more => length += more,
            }
        }
        let whole = io::Cursor::new(first).take(length as u64).chain(input);
        let inner: Box<dyn Read + 'a> = match first {
            [0x1f, 0x8b, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(whole)),
            [0x28, 0xb5, 0x2f, 0xfd] => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(whole)?;
                decoder.window_log_max(MAX_WINDOW)?;
                Box::new(decoder)
            }
            _ => Box::new(whole),
        };
        Ok(LayerStream { inner, sum: Sha256::new(), left: most })
    }

    /// Reads what follows the end of the archive, and returns the digest of everything.
    pub(super) fn finish(mut self) -> io::Result<String> {
        let mut rest = vec![0; 64 << 10];
        while self.read(&mut rest)? > 0 {}
        Ok(hex::encode(self.sum.finalize()))
    }
}

impl Read for LayerStream<'_> {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(piece)?;
        self.sum.update(&piece[..length]);
        self.left = self.left.checked_sub(length as u64).ok_or(io::ErrorKind::StorageFull)?;
        Ok(length)
    }
}

/// A failure to read an archive is the archive's fault.
pub(super) fn archive_error(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::StorageFull => Failure::Full,
        io::ErrorKind::Other => Failure::Unfit(error.to_string()),
        _ => Failure::Unfit(format!("it is not an archive that can be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(bytes: &[u8], most: u64) -> io::Result<(Vec<u8>, String)> {
        let mut archive = LayerStream::new(bytes, most)?;
        let mut all = Vec::new();
        archive.read_to_end(&mut all)?;
        Ok((all, archive.finish()?))
    }

    #[test]
    fn compressions_give_the_same_digest() {
        let plain: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&plain).unwrap();
        let zstd = zstd::encode_all(&plain[..], 1).unwrap();
        let expected = read(&plain, u64::MAX).unwrap();
        assert_eq!(expected.0, plain);
        assert_eq!(read(&gzip.finish().unwrap(), u64::MAX).unwrap(), expected);
        assert_eq!(read(&zstd, u64::MAX).unwrap(), expected);
        assert_eq!(read(b"ab", 10).unwrap().0, b"ab");
    }

    #[test]
    fn decompression_is_limited() {
        let bomb = zstd::encode_all(io::repeat(0).take(10 << 20), 1).unwrap();
        assert!(bomb.len() < 10 << 10);
        assert_eq!(read(&bomb, 1 << 20).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn truncated_stream_is_an_error() {
        let zstd = zstd::encode_all(&[7u8; 1000][..], 1).unwrap();
        assert!(read(&zstd[..zstd.len() - 1], u64::MAX).is_err());
    }
}
