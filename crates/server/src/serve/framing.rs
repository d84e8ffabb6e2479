//! Follows where the messages of a connection begin and end, beside the HTTP library, which hides two facts: whether a
//! head had both Content-Length and Transfer-Encoding, and whether the body of a call has arrived. What this cannot
//! follow is left to the library, which is safe by itself: it trusts Transfer-Encoding and closes the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// How much of a line is kept when it arrives in pieces: enough for the names and for a length.
const LINE_BYTES: usize = 64;

/// What the service of a connection asks. Calls are numbered from 1; 0 is none.
#[derive(Debug, Default)]
pub(super) struct FramingFacts {
    /// The call whose head had both Content-Length and Transfer-Encoding.
    ambiguous: AtomicU32,
    /// The call whose body has not arrived completely.
    incomplete: AtomicU32,
    /// Whether the connection no longer speaks HTTP.
    is_upgraded: AtomicBool,
}

impl FramingFacts {
    /// Returns whether the head of a call had both Content-Length and Transfer-Encoding.
    pub(super) fn is_ambiguous(&self, call: u32) -> bool {
        self.ambiguous.load(Ordering::Acquire) == call
    }

    /// Returns whether a part of the body of a call has not arrived.
    pub(super) fn is_incomplete(&self, call: u32) -> bool {
        self.incomplete.load(Ordering::Acquire) == call
    }

    /// Stops following: what arrives now is no HTTP.
    pub(super) fn mark_upgraded(&self) {
        self.is_upgraded.store(true, Ordering::Release);
    }
}

/// Where in the stream of messages a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Head,
    Body(u64),
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    Trailers,
    Unknown,
}

/// Follows the messages of one connection.
#[derive(Debug)]
pub(super) struct Framing {
    facts: Arc<FramingFacts>,
    position: Position,
    /// The beginning of a line of which more is to arrive, and whether more of it was dropped.
    line: Vec<u8>,
    is_cut: bool,
    head: Head,
    calls: u32,
}

/// What is known of the head that arrives.
#[derive(Debug, Default)]
struct Head {
    has_request_line: bool,
    has_encoding: bool,
    length: Option<Result<u64, UnknownLength>>,
}

#[derive(Clone, Copy, Debug)]
struct UnknownLength;

impl Framing {
    pub(super) fn new(facts: Arc<FramingFacts>) -> Framing {
        Framing { facts, position: Position::Head, line: Vec::new(), is_cut: false, head: Head::default(), calls: 0 }
    }

    /// Follows the next bytes that arrived.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) {
        if self.facts.is_upgraded.load(Ordering::Acquire) {
            return;
        }
        while !bytes.is_empty() {
            bytes = match self.position {
                Position::Unknown => return,
                Position::Body(left) => self.skip(bytes, left, Position::Body, Position::Head),
                Position::ChunkData(left) => self.skip(bytes, left, Position::ChunkData, Position::ChunkEnd),
                Position::Head | Position::ChunkSize | Position::ChunkEnd | Position::Trailers => self.take_line(bytes),
            };
        }
    }

    /// Skips data of a body, and returns the bytes after it.
    fn skip<'a>(&mut self, bytes: &'a [u8], left: u64, rest: fn(u64) -> Position, after: Position) -> &'a [u8] {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let left = left - count as u64;
        self.move_to(if left == 0 { after } else { rest(left) });
        &bytes[count..]
    }

    /// Takes the rest of a line, and returns the bytes after it.
    fn take_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let end = memchr::memchr(b'\n', bytes);
        let (piece, rest) = end.map_or((bytes, &[][..]), |end| (&bytes[..end], &bytes[end + 1..]));
        if end.is_some() && self.line.is_empty() {
            self.end_line(piece);
            return rest;
        }
        let kept = piece.len().min(LINE_BYTES - self.line.len());
        self.line.extend_from_slice(&piece[..kept]);
        self.is_cut |= kept < piece.len();
        if end.is_some() {
            let line = std::mem::take(&mut self.line);
            self.end_line(&line);
            self.is_cut = false;
        }
        rest
    }

    fn end_line(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match self.position {
            Position::Head if !line.is_empty() => self.head.add_line(line, self.is_cut),
            // Empty lines before a request line mean nothing.
            Position::Head if !self.head.has_request_line => {}
            Position::Head => self.end_head(),
            Position::ChunkSize => self.move_to(match chunk_size(line) {
                Some(0) => Position::Trailers,
                Some(size) => Position::ChunkData(size),
                None => Position::Unknown,
            }),
            Position::ChunkEnd => self.move_to(if line.is_empty() { Position::ChunkSize } else { Position::Unknown }),
            Position::Trailers if line.is_empty() => self.move_to(Position::Head),
            Position::Trailers | Position::Body(_) | Position::ChunkData(_) | Position::Unknown => {}
        }
    }

    fn end_head(&mut self) {
        let head = std::mem::take(&mut self.head);
        self.calls = self.calls.wrapping_add(1);
        let position = match head.length {
            Some(_) if head.has_encoding => {
                self.facts.ambiguous.store(self.calls, Ordering::Release);
                Position::Unknown
            }
            None if head.has_encoding => Position::ChunkSize,
            None | Some(Ok(0)) => Position::Head,
            Some(Ok(length)) => Position::Body(length),
            Some(Err(UnknownLength)) => Position::Unknown,
        };
        self.move_to(position);
    }

    fn move_to(&mut self, position: Position) {
        self.position = position;
        let incomplete = if matches!(position, Position::Head | Position::Unknown) { 0 } else { self.calls };
        self.facts.incomplete.store(incomplete, Ordering::Release);
    }
}

impl Head {
    fn add_line(&mut self, line: &[u8], is_cut: bool) {
        if !self.has_request_line {
            self.has_request_line = true;
            return;
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.has_encoding = true;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let length =
                std::str::from_utf8(value).ok().filter(|_| !is_cut).and_then(|value| value.trim().parse().ok());
            self.length = Some(length.ok_or(UnknownLength));
        }
    }
}

/// Returns the size of a chunk; `None` if it cannot be read.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let size = line.split(|byte| matches!(byte, b';' | b' ' | b'\t')).next()?;
    u64::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows the text in pieces of every size, and returns the ambiguous and the incomplete call.
    fn followed(text: &str) -> (u32, u32) {
        let outcomes: Vec<_> = (1..=text.len())
            .map(|size| {
                let facts = Arc::new(FramingFacts::default());
                let mut framing = Framing::new(facts.clone());
                text.as_bytes().chunks(size).for_each(|piece| framing.follow(piece));
                (facts.ambiguous.load(Ordering::Acquire), facts.incomplete.load(Ordering::Acquire))
            })
            .collect();
        assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{text}: {outcomes:?}");
        outcomes[0]
    }

    const CHUNKED: &str =
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nA: b\r\n\r\n";
    const LENGTH: &str = "\r\nPUT / HTTP/1.1\nHost: x\ncontent-length: 4\n\nfour";
    const EMPTY: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";

    /// A call with both lengths is found behind any other call, in whatever order and pieces its headers arrive.
    #[test]
    fn ambiguous_call_is_found() {
        let both = "POST / HTTP/1.1\r\nContent-Length: 4\r\nTRANSFER-ENCODING: chunked\r\n\r\n";
        let turned = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length:   4\r\n\r\n";
        for before in ["", CHUNKED, LENGTH, EMPTY, &format!("{LENGTH}{CHUNKED}{EMPTY}{CHUNKED}")] {
            let calls = before.matches(" / HTTP/1.1").count() as u32;
            assert_eq!(followed(&format!("{before}{both}")).0, calls + 1, "{before}");
            assert_eq!(followed(&format!("{before}{turned}")).0, calls + 1, "{before}");
        }
        let inside = "POST / HTTP/1.1\r\ncontent-length: 70\r\n\r\n";
        assert_eq!(followed(&format!("{inside}{both}")).0, 0, "a body is no head");
    }

    /// The call whose body is on its way is known.
    #[test]
    fn incomplete_call_is_known() {
        assert_eq!(followed(&format!("{EMPTY}{LENGTH}{CHUNKED}")).1, 0);
        assert_eq!(followed(&format!("{EMPTY}{}", &LENGTH[..LENGTH.len() - 1])).1, 2);
        assert_eq!(followed(&CHUNKED[..CHUNKED.len() - 2]).1, 1);
        assert_eq!(followed(&format!("{CHUNKED}{LENGTH}{}", &CHUNKED[..CHUNKED.len() - 20])).1, 3);
    }

    /// What is no HTTP is not followed, whatever it holds.
    #[test]
    fn unreadable_messages_are_left_alone() {
        let chunked = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(followed(&format!("{chunked}many\r\n{EMPTY}")), (0, 0));
        assert_eq!(followed("POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\nabc"), (0, 0));
    }
}
