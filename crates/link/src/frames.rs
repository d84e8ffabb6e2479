//! How messages look on the wire: a byte that says what follows, its length in four bytes (big end first), and it.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::{Error, Result};

/// The longest piece of data in one frame.
pub const MAX_DATA: usize = 128 << 10;

/// The longest message; a configuration with a thousand large keys fits.
pub const MAX_MESSAGE: usize = 2 << 20;

const HEADER: usize = 5;

const MESSAGE: u8 = 1;
const DATA: u8 = 2;
const STDERR: u8 = 3;
const EOF: u8 = 4;

/// What comes out of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A message, as JSON.
    Message(Bytes),
    /// Input or output.
    Data(Bytes),
    /// Output for the error stream.
    Stderr(Bytes),
    /// No more data follows in this direction.
    Eof,
}

impl Frame {
    /// What a message says.
    pub fn parse<T: DeserializeOwned>(message: &[u8]) -> Result<T> {
        serde_json::from_slice(message).map_err(|e| Error::Protocol(format!("a message was not understood: {e}")))
    }
}

/// Reads frames. Cancelling a read loses nothing.
#[derive(Debug)]
pub struct Reader<R> {
    stream: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Reads from a stream.
    pub fn new(stream: R) -> Self {
        Reader { stream, buffer: BytesMut::new() }
    }

    /// The next frame; `None` at the end of the stream.
    pub async fn read(&mut self) -> Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.take()? {
                return Ok(Some(frame));
            }
            self.buffer.reserve(MAX_DATA + HEADER);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return match self.buffer.is_empty() {
                    true => Ok(None),
                    // Whoever keeps to the protocol may die within a frame.
                    false => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended within a frame").into()),
                };
            }
        }
    }

    /// The next message, where nothing else may come; `None` at the end of the stream.
    pub async fn read_message<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        match self.read().await? {
            Some(Frame::Message(message)) => Frame::parse(&message).map(Some),
            Some(Frame::Data(_) | Frame::Stderr(_) | Frame::Eof) => {
                Err(Error::Protocol("data came where a message belongs".into()))
            }
            None => Ok(None),
        }
    }

    /// A whole frame out of the buffer, if there is one.
    fn take(&mut self) -> Result<Option<Frame>> {
        let Some(header) = self.buffer.first_chunk::<HEADER>() else { return Ok(None) };
        let (kind, length) = (header[0], u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize);
        let limit = match kind {
            MESSAGE => MAX_MESSAGE,
            DATA | STDERR => MAX_DATA,
            EOF => 0,
            other => return Err(Error::Protocol(format!("there is no frame of kind {other}"))),
        };
        if length > limit {
            return Err(Error::Protocol(format!("a frame of {length} bytes is longer than {limit}")));
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

/// Writes frames. A write that is cancelled may leave half a frame behind: the stream is then good for nothing.
#[derive(Debug)]
pub struct Writer<W> {
    stream: W,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Writes to a stream.
    pub fn new(stream: W) -> Self {
        Writer { stream }
    }

    /// The stream again, for frames that are written already.
    pub fn into_inner(self) -> W {
        self.stream
    }

    /// Sends a message.
    pub async fn message<T: Serialize>(&mut self, message: &T) -> Result<()> {
        let text = serde_json::to_vec(message).map_err(|e| Error::Protocol(e.to_string()))?;
        if text.len() > MAX_MESSAGE {
            return Err(Error::Protocol(format!("a message of {} bytes is longer than {MAX_MESSAGE}", text.len())));
        }
        self.frame(MESSAGE, &text).await
    }

    /// Sends input or output, in as many frames as it takes.
    pub async fn data(&mut self, data: &[u8]) -> Result<()> {
        for piece in data.chunks(MAX_DATA) {
            self.frame(DATA, piece).await?;
        }
        Ok(())
    }

    /// Sends output of the error stream, in as many frames as it takes.
    pub async fn stderr(&mut self, data: &[u8]) -> Result<()> {
        for piece in data.chunks(MAX_DATA) {
            self.frame(STDERR, piece).await?;
        }
        Ok(())
    }

    /// Says that no more data follows.
    pub async fn eof(&mut self) -> Result<()> {
        self.frame(EOF, &[]).await
    }

    async fn frame(&mut self, kind: u8, payload: &[u8]) -> Result<()> {
        let length = u32::try_from(payload.len()).expect("frames are shorter than their limit").to_be_bytes();
        let header = [kind, length[0], length[1], length[2], length[3]];
        self.stream.write_all_buf(&mut Buf::chain(header.as_slice(), payload)).await?;
        self.stream.flush().await?;
        Ok(())
    }
}
