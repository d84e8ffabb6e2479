//! Replaces the signatures of the chunks of a body whose request was signed again.
//!
//! The signature of a chunk covers the one before it and the region. A chunk whose signature is wrong gets another
//! wrong one, so that s3s refuses it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body, Frame};
use s3s::StdError;
use sha2::{Digest, Sha256};

use super::canonical::SigningKey;
use crate::s3::ingress::chunks::{ChunkError, MAX_CHUNK, parse_chunk_line};

/// The maximum size of a line before a chunk, as elsewhere.
const MAX_LINE: usize = 1024;

/// The maximum size of what follows the last chunk; s3s accepts as much.
const MAX_TAIL: usize = 16 << 10;

/// A signature that no chunk has.
const WRONG: &str = "0000000000000000000000000000000000000000000000000000000000000000";

const NAME: &str = ";chunk-signature=";
const TRAILER_NAME: &str = "x-amz-trailer-signature";

/// One of the two chains of signatures: that of the client and the new one.
struct Chain {
    key: SigningKey,
    scope: String,
    previous: String,
}

/// The keys with which the chunks of a body were signed and are signed again.
pub(in crate::s3) struct ChunkKeys {
    time: String,
    old: Chain,
    new: Chain,
}

impl ChunkKeys {
    /// Each key comes with its scope and the signature of the request, with which its chain begins.
    pub(super) fn new(
        time: String,
        old: (SigningKey, String),
        old_seed: String,
        new: (SigningKey, String),
        new_seed: String,
    ) -> Self {
        let old = Chain { key: old.0, scope: old.1, previous: old_seed };
        let new = Chain { key: new.0, scope: new.1, previous: new_seed };
        ChunkKeys { time, old, new }
    }

    /// Returns the new signature of a chunk, or one that is wrong where that of the client is.
    fn resign(&mut self, kind: &str, hashes: &str, signature: &str) -> String {
        let time = &self.time;
        let text = |chain: &Chain| format!("{kind}\n{time}\n{}\n{}\n{hashes}", chain.scope, chain.previous);
        if !self.old.key.verifies(&text(&self.old), signature) {
            return WRONG.to_owned();
        }
        let replaced = self.new.key.sign(&text(&self.new));
        signature.clone_into(&mut self.old.previous);
        self.new.previous.clone_from(&replaced);
        replaced
    }

    fn resign_chunk(&mut self, data: &[u8], signature: &str) -> String {
        let hashes = format!("{}\n{}", hex::encode(Sha256::digest([])), hex::encode(Sha256::digest(data)));
        self.resign("AWS4-HMAC-SHA256-PAYLOAD", &hashes, signature)
    }

    /// Replaces the signature in the lines after the last chunk, if there is one.
    fn resign_trailer(&mut self, tail: &[u8]) -> Option<Vec<u8>> {
        let text = std::str::from_utf8(tail).ok()?;
        let mut lines: Vec<(String, &str)> = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim_ascii()))
            .collect();
        let (_, signature) = *lines.iter().find(|(name, value)| name == TRAILER_NAME && !value.is_empty())?;
        lines.retain(|(name, _)| name != TRAILER_NAME);
        lines.sort_by(|a, b| a.0.cmp(&b.0));
        let covered: String = lines.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let replaced = self.resign("AWS4-HMAC-SHA256-TRAILER", &hex::encode(Sha256::digest(covered)), signature);
        Some(text.replace(signature, &replaced).into_bytes())
    }
}

/// A body whose chunks are signed again.
pub(in crate::s3) struct ResignedChunks<B> {
    inner: Pin<Box<B>>,
    keys: ChunkKeys,
    received: BytesMut,
    /// Whether the last chunk has passed.
    in_tail: bool,
    ended: bool,
}

impl<B> ResignedChunks<B> {
    pub(in crate::s3) fn new(inner: B, keys: ChunkKeys) -> Self {
        ResignedChunks { inner: Box::pin(inner), keys, received: BytesMut::new(), in_tail: false, ended: false }
    }

    /// Returns the next chunk with its new signature, once all of it was received.
    fn next_chunk(&mut self) -> Result<Option<Bytes>, ChunkError> {
        let Some(end) = self.received.iter().position(|byte| *byte == b'\n').map(|end| end + 1) else {
            return if self.received.len() > MAX_LINE { Err(ChunkError::Malformed) } else { Ok(None) };
        };
        let line = self.received.get(..end).unwrap_or_default();
        let (size, _) = parse_chunk_line(line)?;
        if size > MAX_CHUNK {
            return Err(ChunkError::TooLarge);
        }
        let line = std::str::from_utf8(line).map_err(|_| ChunkError::Malformed)?.trim_end();
        let (digits, signature) = line.split_once(NAME).ok_or(ChunkError::Malformed)?;
        let (size, breaks) = (size as usize, if size == 0 { 0 } else { 2 });
        let Some(data) = self.received.get(end..end + size).filter(|_| self.received.len() >= end + size + breaks)
        else {
            return Ok(None);
        };
        let replaced = self.keys.resign_chunk(data, signature);
        let mut chunk = BytesMut::from(format!("{digits}{NAME}{replaced}\r\n").as_bytes());
        self.received.advance(end);
        chunk.unsplit(self.received.split_to(size + breaks));
        self.in_tail = size == 0;
        Ok(Some(chunk.freeze()))
    }

    fn take_tail(&mut self) -> Option<Bytes> {
        let tail = self.received.split().freeze();
        let replaced = self.keys.resign_trailer(&tail).map(Bytes::from);
        Some(replaced.unwrap_or(tail)).filter(|tail| !tail.is_empty())
    }
}

impl<B> Body for ResignedChunks<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<StdError>,
{
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        loop {
            if !self.in_tail
                && let Some(chunk) = self.next_chunk()?
            {
                return Poll::Ready(Some(Ok(Frame::data(chunk))));
            }
            if self.in_tail && self.received.len() > MAX_TAIL {
                return Poll::Ready(Some(Err(ChunkError::Malformed.into())));
            }
            if self.ended {
                return Poll::Ready(self.take_tail().map(|tail| Ok(Frame::data(tail))));
            }
            match ready!(self.inner.as_mut().poll_frame(cx)) {
                None => self.ended = true,
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        self.received.extend_from_slice(&piece);
                    }
                }
            }
        }
    }
}
