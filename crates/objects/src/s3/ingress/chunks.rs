//! A guard in front of s3s for bodies in the encoding aws-chunked.
//!
//! Each chunk announces its size, and s3s holds a whole chunk in memory before it hands anything on. So a large chunk without
//! a signature is cut into smaller ones here, and a large one with a signature is refused: it could not be checked in pieces.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use s3s::StdError;

/// How large a chunk with a signature may be. Stock clients send at most 1 MiB.
pub(in crate::s3) const MAX_CHUNK: u64 = 2 << 20;

/// How large a chunk without one may be before it is cut.
const CUT_ABOVE: u64 = 1 << 20;

/// How long the line before a chunk may be; a signature has 64 characters.
const MAX_LINE: usize = 1024;

/// The text that tells a chunk that is too large from other failures.
pub(in crate::s3) const TOO_LARGE: &str = "ChunkTooLarge";

/// Why a body cannot be read on.
#[derive(Debug, thiserror::Error)]
pub(in crate::s3) enum Broken {
    #[error("{TOO_LARGE}")]
    TooLarge,
    #[error("FormatError")]
    Malformed,
    #[error("the connection failed: {0}")]
    Connection(StdError),
}

/// A body in chunks, none of which is large.
pub(in crate::s3) struct Guarded<B> {
    inner: Pin<Box<B>>,
    splitter: Splitter,
    ended: bool,
}

impl<B> Guarded<B> {
    pub(in crate::s3) fn new(inner: B) -> Self {
        Guarded { inner: Box::pin(inner), splitter: Splitter::default(), ended: false }
    }
}

impl<B> Body for Guarded<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<StdError>,
{
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
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
                    // s3s would take a body without its last chunk for a whole one.
                    if !matches!(self.splitter.state, State::Tail) {
                        return Poll::Ready(Some(Err(Broken::Malformed)));
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(Broken::Connection(error.into())))),
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        self.splitter.take(piece)?;
                    }
                }
            }
        }
    }
}

/// Follows the encoding without looking at the data.
#[derive(Default)]
struct Splitter {
    state: State,
    /// The beginning of a line whose end has not come.
    held: BytesMut,
    /// What can be handed on.
    ready: VecDeque<Bytes>,
}

#[derive(Clone, Copy, Default)]
enum State {
    /// In the line before a chunk.
    #[default]
    Line,
    /// In a chunk, of which so much is to come.
    Data { left: u64, cut: bool },
    /// In the line break after a chunk.
    Break { left: u64, cut: bool },
    /// After the last chunk; what comes is small, and s3s has a limit for it.
    Tail,
}

impl Splitter {
    fn take(&mut self, mut piece: Bytes) -> Result<(), Broken> {
        if !self.held.is_empty() {
            self.held.extend_from_slice(&piece);
            piece = std::mem::take(&mut self.held).freeze();
        }
        // What is handed on as it came is kept in one piece: its beginning up to here.
        let mut at = 0;
        while at < piece.len() {
            match self.state {
                State::Line => {
                    let Some(end) = piece[at..].iter().position(|byte| *byte == b'\n').map(|end| at + end + 1) else {
                        self.hand_on(piece.split_to(at));
                        self.held = BytesMut::from(&piece[..]);
                        return if self.held.len() > MAX_LINE { Err(Broken::Malformed) } else { Ok(()) };
                    };
                    let (left, cut) = announced(&piece[at..end])?;
                    if cut {
                        self.hand_on(piece.split_to(at));
                        piece = piece.split_off(end - at);
                        at = 0;
                    } else {
                        at = end;
                    }
                    self.state = if left == 0 { State::Tail } else { State::Data { left, cut } };
                }
                State::Data { left, cut } => {
                    let here = left.min((piece.len() - at) as u64) as usize;
                    if cut {
                        let data = piece.split_to(here);
                        self.hand_on(Bytes::from(format!("{here:x}\r\n")));
                        self.hand_on(data);
                        self.hand_on(Bytes::from_static(b"\r\n"));
                    } else {
                        at += here;
                    }
                    let left = left - here as u64;
                    self.state = if left == 0 { State::Break { left: 2, cut } } else { State::Data { left, cut } };
                }
                State::Break { left, cut } => {
                    let here = left.min((piece.len() - at) as u64) as usize;
                    if cut {
                        if piece.split_to(here).iter().any(|byte| !b"\r\n".contains(byte)) {
                            return Err(Broken::Malformed);
                        }
                    } else {
                        at += here;
                    }
                    let left = left - here as u64;
                    self.state = if left == 0 { State::Line } else { State::Break { left, cut } };
                }
                State::Tail => at = piece.len(),
            }
        }
        self.hand_on(piece);
        Ok(())
    }

    fn hand_on(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.ready.push_back(piece);
        }
    }
}

/// The size that a line announces, and whether the chunk is to be cut.
fn announced(line: &[u8]) -> Result<(u64, bool), Broken> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    // s3s reads the first eight digits and would see another size than this in more of them.
    if !(1..=8).contains(&digits) {
        return Err(Broken::Malformed);
    }
    let text = std::str::from_utf8(&line[..digits]).map_err(|_| Broken::Malformed)?;
    let size = u64::from_str_radix(text, 16).map_err(|_| Broken::Malformed)?;
    match line.get(digits) {
        Some(b'\r') => Ok((size, size > CUT_ABOVE)),
        Some(b';') if size > MAX_CHUNK => Err(Broken::TooLarge),
        Some(b';') => Ok((size, false)),
        _ => Err(Broken::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes out when a body comes in pieces of this size.
    fn through(body: &[u8], step: usize) -> Result<Vec<u8>, Broken> {
        let mut splitter = Splitter::default();
        for piece in body.chunks(step) {
            splitter.take(Bytes::copy_from_slice(piece))?;
        }
        Ok(splitter.ready.iter().flat_map(|piece| piece.to_vec()).collect())
    }

    /// The data of a body in chunks, and the size of the largest.
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

    #[test]
    fn what_is_small_passes_as_it_came() {
        let body = b"5;chunk-signature=00\r\nhello\r\n3\r\nabc\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n";
        for step in [1, 2, 3, 7, body.len()] {
            assert_eq!(through(body, step).unwrap(), body);
        }
        let mut whole = Splitter::default();
        whole.take(Bytes::from_static(body)).unwrap();
        assert_eq!(whole.ready.len(), 1, "one piece in, one piece out");
    }

    #[test]
    fn a_large_chunk_without_a_signature_is_cut() {
        let data: Vec<u8> = (0..3 << 20).map(|at: u32| (at % 251) as u8).collect();
        let mut body = format!("{:x}\r\n", data.len()).into_bytes();
        body.extend_from_slice(&data);
        body.extend_from_slice(b"\r\n4\r\nlast\r\n0\r\n\r\n");
        for step in [1000, 70_001, 1 << 20] {
            let (decoded, largest) = decode(&through(&body, step).unwrap());
            assert_eq!(decoded.len(), data.len() + 4);
            assert!(decoded.starts_with(&data) && decoded.ends_with(b"last"));
            assert!(largest <= step, "{largest} of {step}");
        }
    }

    #[test]
    fn what_cannot_be_held_is_refused() {
        assert!(matches!(through(b"200001;chunk-signature=00\r\n", 5), Err(Broken::TooLarge)));
        assert!(through(b"200000;chunk-signature=00\r\n", 5).is_ok());
        for bad in [&b"000000001\r\na"[..], b"zz\r\n", b"\r\n", b"5 \r\nhello", &[b'1'; 2000]] {
            assert!(matches!(through(bad, 100), Err(Broken::Malformed)), "{bad:?}");
        }
    }
}
