//! A guard in front of s3s for bodies in the encoding aws-chunked.
//!
//! Each chunk announces its size, and s3s holds a whole chunk in memory before it passes anything on. So a large
//! unsigned chunk is split into smaller ones here, and a large signed one is refused, because it could not be verified
//! in pieces.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use s3s::StdError;

/// The maximum size of a signed chunk. Stock clients send at most 1 MiB.
pub(in crate::s3) const MAX_CHUNK: u64 = 2 << 20;

/// The size above which an unsigned chunk is split.
const SPLIT_ABOVE: u64 = 1 << 20;

/// The maximum length of the line before a chunk; a signature has 64 characters.
const MAX_LINE: usize = 1024;

/// The text that distinguishes a chunk that is too large from other errors.
pub(in crate::s3) const TOO_LARGE: &str = "ChunkTooLarge";

/// Why a chunked body cannot be read.
#[derive(Debug, thiserror::Error)]
pub(in crate::s3) enum ChunkError {
    #[error("{TOO_LARGE}")]
    TooLarge,
    #[error("FormatError")]
    Malformed,
    #[error("the connection failed: {0}")]
    Connection(StdError),
}

/// A chunked body without large chunks.
pub(in crate::s3) struct SplitChunks<B> {
    inner: Pin<Box<B>>,
    splitter: Splitter,
    ended: bool,
}

impl<B> SplitChunks<B> {
    pub(in crate::s3) fn new(inner: B) -> Self {
        SplitChunks { inner: Box::pin(inner), splitter: Splitter::default(), ended: false }
    }
}

impl<B> Body for SplitChunks<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<StdError>,
{
    type Data = Bytes;
    type Error = ChunkError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ChunkError>>> {
        loop {
            if let Some(piece) = self.splitter.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match ready!(self.inner.as_mut().poll_frame(cx)) {
                None => {
                    self.ended = true;
                    // s3s would accept a body without its last chunk as complete.
                    if !matches!(self.splitter.state, State::Tail) {
                        return Poll::Ready(Some(Err(ChunkError::Malformed)));
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(ChunkError::Connection(error.into())))),
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        self.splitter.push_bytes(piece)?;
                    }
                }
            }
        }
    }
}

/// Follows the encoding without interpreting the data.
#[derive(Default)]
struct Splitter {
    state: State,
    /// The start of a line whose end has not arrived.
    partial_line: BytesMut,
    /// The output.
    ready: VecDeque<Bytes>,
}

#[derive(Clone, Copy, Default)]
enum State {
    #[default]
    Line,
    /// In a chunk with this many bytes left.
    Data {
        left: u64,
        split: bool,
    },
    Break {
        left: u64,
        split: bool,
    },
    /// After the last chunk. What follows is small, and s3s limits it.
    Tail,
}

impl Splitter {
    fn push_bytes(&mut self, mut piece: Bytes) -> Result<(), ChunkError> {
        if !self.partial_line.is_empty() {
            self.partial_line.extend_from_slice(&piece);
            piece = std::mem::take(&mut self.partial_line).freeze();
        }
        // Unchanged output is kept in one piece: up to this index.
        let mut at = 0;
        while at < piece.len() {
            match self.state {
                State::Line => {
                    let Some(end) = piece[at..].iter().position(|byte| *byte == b'\n').map(|end| at + end + 1) else {
                        self.queue_output(piece.split_to(at));
                        self.partial_line = BytesMut::from(&piece[..]);
                        return if self.partial_line.len() > MAX_LINE { Err(ChunkError::Malformed) } else { Ok(()) };
                    };
                    let (left, split) = parse_chunk_line(&piece[at..end])?;
                    if split {
                        self.queue_output(piece.split_to(at));
                        piece = piece.split_off(end - at);
                        at = 0;
                    } else {
                        at = end;
                    }
                    self.state = if left == 0 { State::Tail } else { State::Data { left, split } };
                }
                State::Data { left, split } => {
                    let here = left.min((piece.len() - at) as u64) as usize;
                    if split {
                        let data = piece.split_to(here);
                        self.queue_output(Bytes::from(format!("{here:x}\r\n")));
                        self.queue_output(data);
                        self.queue_output(Bytes::from_static(b"\r\n"));
                    } else {
                        at += here;
                    }
                    let left = left - here as u64;
                    self.state = if left == 0 { State::Break { left: 2, split } } else { State::Data { left, split } };
                }
                State::Break { left, split } => {
                    let here = left.min((piece.len() - at) as u64) as usize;
                    if split {
                        if piece.split_to(here).iter().any(|byte| !b"\r\n".contains(byte)) {
                            return Err(ChunkError::Malformed);
                        }
                    } else {
                        at += here;
                    }
                    let left = left - here as u64;
                    self.state = if left == 0 { State::Line } else { State::Break { left, split } };
                }
                State::Tail => at = piece.len(),
            }
        }
        self.queue_output(piece);
        Ok(())
    }

    fn queue_output(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.ready.push_back(piece);
        }
    }
}

/// Returns the size that a line announces, and whether the chunk is to be split.
pub(in crate::s3) fn parse_chunk_line(line: &[u8]) -> Result<(u64, bool), ChunkError> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    // s3s reads only the first eight digits and would see another size.
    if !(1..=8).contains(&digits) {
        return Err(ChunkError::Malformed);
    }
    let text = std::str::from_utf8(&line[..digits]).map_err(|_| ChunkError::Malformed)?;
    let size = u64::from_str_radix(text, 16).map_err(|_| ChunkError::Malformed)?;
    match line.get(digits) {
        Some(b'\r') => Ok((size, size > SPLIT_ABOVE)),
        Some(b';') if size > MAX_CHUNK => Err(ChunkError::TooLarge),
        Some(b';') => Ok((size, false)),
        _ => Err(ChunkError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the output for a body that arrives in pieces of this size.
    fn split_in_steps(body: &[u8], step: usize) -> Result<Vec<u8>, ChunkError> {
        let mut splitter = Splitter::default();
        for piece in body.chunks(step) {
            splitter.push_bytes(Bytes::copy_from_slice(piece))?;
        }
        Ok(splitter.ready.iter().flat_map(|piece| piece.to_vec()).collect())
    }

    /// Returns the data of a chunked body, and the size of the largest chunk.
    fn decode(mut body: &[u8]) -> (Vec<u8>, usize) {
        let (mut data, mut largest) = (Vec::new(), 0);
        loop {
            let end = body.windows(2).position(|pair| pair == b"\r\n").unwrap();
            let line = std::str::from_utf8(&body[..end]).unwrap();
            let size = usize::from_str_radix(line.split(';').next().unwrap(), 16).unwrap();
            body = &body[end + 2..];
            if size == 0 {
                return (data, largest);
            }
            largest = largest.max(size);
            data.extend_from_slice(&body[..size]);
            assert_eq!(&body[size..size + 2], b"\r\n");
            body = &body[size + 2..];
        }
    }

    /// Small chunks pass unchanged.
    #[test]
    fn small_chunks_pass_unchanged() {
        let body = b"5;chunk-signature=00\r\nhello\r\n3\r\nabc\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n";
        for step in [1, 2, 3, 7, body.len()] {
            assert_eq!(split_in_steps(body, step).unwrap(), body);
        }
        let mut whole = Splitter::default();
        whole.push_bytes(Bytes::from_static(body)).unwrap();
        assert_eq!(whole.ready.len(), 1, "one piece in, one piece out");
    }

    /// A large unsigned chunk is split.
    #[test]
    fn large_unsigned_chunk_is_split() {
        let data: Vec<u8> = (0..3 << 20).map(|at: u32| (at % 251) as u8).collect();
        let mut body = format!("{:x}\r\n", data.len()).into_bytes();
        body.extend_from_slice(&data);
        body.extend_from_slice(b"\r\n4\r\nlast\r\n0\r\n\r\n");
        for step in [1000, 70_001, 1 << 20] {
            let (decoded, largest) = decode(&split_in_steps(&body, step).unwrap());
            assert_eq!(decoded.len(), data.len() + 4);
            assert!(decoded.starts_with(&data) && decoded.ends_with(b"last"));
            assert!(largest <= step, "{largest} of {step}");
        }
    }

    /// A large signed chunk and malformed input are refused.
    #[test]
    fn large_signed_chunk_is_refused() {
        assert!(matches!(split_in_steps(b"200001;chunk-signature=00\r\n", 5), Err(ChunkError::TooLarge)));
        assert!(split_in_steps(b"200000;chunk-signature=00\r\n", 5).is_ok());
        for bad in [&b"000000001\r\na"[..], b"zz\r\n", b"\r\n", b"5 \r\nhello", &[b'1'; 2000]] {
            assert!(matches!(split_in_steps(bad, 100), Err(ChunkError::Malformed)), "{bad:?}");
        }
    }
}
