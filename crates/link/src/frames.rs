//! The wire format of a link: a byte for the kind of frame, the length of the payload as a big-endian `u32`, and the
//! payload.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::{Error, Result};

/// The maximum payload of a data frame.
pub const MAX_DATA: usize = 128 << 10;

/// The maximum length of a message; a configuration with a thousand large keys fits.
pub const MAX_MESSAGE: usize = 2 << 20;

const HEADER: usize = 5;

const MESSAGE: u8 = 1;
const DATA: u8 = 2;
const STDERR: u8 = 3;
const EOF: u8 = 4;

/// One frame of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Message(Bytes),
    Data(Bytes),
    Stderr(Bytes),
    /// The end of data in this direction.
    Eof,
}

impl Frame {
    /// Parses the JSON of a message.
    pub fn parse<T: DeserializeOwned>(message: &[u8]) -> Result<T> {
        serde_json::from_slice(message).map_err(|e| Error::Protocol(format!("a message could not be parsed: {e}")))
    }
}

/// Reads frames. Cancelling a read loses no data.
#[derive(Debug)]
pub struct Reader<R> {
    stream: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Creates a reader of a stream.
    pub fn new(stream: R) -> Self {
        Reader { stream, buffer: BytesMut::new() }
    }

    /// Reads the next frame; `None` at the end of the stream.
    pub async fn read(&mut self) -> Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.take_frame()? {
                return Ok(Some(frame));
            }
            self.buffer.reserve(MAX_DATA + HEADER);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                if self.buffer.is_empty() {
                    return Ok(None);
                }
                // Not a protocol error: a process may die while it writes a frame.
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended within a frame").into());
            }
        }
    }

    /// Reads the next message and rejects any other frame; `None` at the end of the stream.
    pub async fn read_message<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        match self.read().await? {
            Some(Frame::Message(message)) => Frame::parse(&message).map(Some),
            Some(Frame::Data(_) | Frame::Stderr(_) | Frame::Eof) => {
                Err(Error::Protocol("a data frame arrived where a message was expected".into()))
            }
            None => Ok(None),
        }
    }

    /// Takes a complete frame from the buffer, if there is one.
    fn take_frame(&mut self) -> Result<Option<Frame>> {
        let Some(header) = self.buffer.first_chunk::<HEADER>() else { return Ok(None) };
        let (kind, length) = (header[0], u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize);
        let limit = match kind {
            MESSAGE => MAX_MESSAGE,
            DATA | STDERR => MAX_DATA,
            EOF => 0,
            other => return Err(Error::Protocol(format!("unknown frame kind {other}"))),
        };
        if length > limit {
            return Err(Error::Protocol(format!("a frame of {length} bytes exceeds the limit of {limit}")));
        }
        if self.buffer.len() < HEADER + length {
            self.buffer.reserve(HEADER + length - self.buffer.len());
            return Ok(None);
        }
        self.buffer.advance(HEADER);
        let payload = self.buffer.split_to(length).freeze();
        Ok(Some(match kind {
            MESSAGE => Frame::Message(payload),
            DATA => Frame::Data(payload),
            STDERR => Frame::Stderr(payload),
            _ => Frame::Eof,
        }))
    }
}

/// Writes frames. A cancelled write may leave an incomplete frame behind; the stream is unusable then.
#[derive(Debug)]
pub struct Writer<W> {
    stream: W,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Creates a writer of a stream.
    pub fn new(stream: W) -> Self {
        Writer { stream }
    }

    /// Returns the stream, for frames that are already encoded.
    pub fn into_inner(self) -> W {
        self.stream
    }

    /// Sends a message.
    pub async fn message<T: Serialize>(&mut self, message: &T) -> Result<()> {
        let text = serde_json::to_vec(message).map_err(|e| Error::Protocol(e.to_string()))?;
        if text.len() > MAX_MESSAGE {
            return Err(Error::Protocol(format!(
                "a message of {} bytes exceeds the limit of {MAX_MESSAGE}",
                text.len()
            )));
        }
        self.write_frame(MESSAGE, &text).await
    }

    /// Sends data, in as many frames as needed.
    pub async fn data(&mut self, data: &[u8]) -> Result<()> {
        for piece in data.chunks(MAX_DATA) {
            self.write_frame(DATA, piece).await?;
        }
        Ok(())
    }

    /// Sends data of the error stream, in as many frames as needed.
    pub async fn stderr(&mut self, data: &[u8]) -> Result<()> {
        for piece in data.chunks(MAX_DATA) {
            self.write_frame(STDERR, piece).await?;
        }
        Ok(())
    }

    /// Sends the end of data.
    pub async fn eof(&mut self) -> Result<()> {
        self.write_frame(EOF, &[]).await
    }

    async fn write_frame(&mut self, kind: u8, payload: &[u8]) -> Result<()> {
        let length = u32::try_from(payload.len()).expect("frames are shorter than their limit").to_be_bytes();
        let header = [kind, length[0], length[1], length[2], length[3]];
        self.stream.write_all_buf(&mut Buf::chain(header.as_slice(), payload)).await?;
        self.stream.flush().await?;
        Ok(())
    }
}
