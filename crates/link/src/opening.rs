//! How a stream begins, on either side.

use std::io;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};

use crate::{Answer, Error, Purpose, Reader, Result, Stream, VERSION, Writer};

/// The first message.
#[derive(Debug, Serialize, Deserialize)]
struct Open {
    version: u16,
    purpose: Purpose,
}

/// Both directions of a stream that has been opened.
pub type Opened<S> = (Reader<ReadHalf<S>>, Writer<WriteHalf<S>>);

/// The engine's side: says what the stream is for and waits for the answer. The caller bounds the time.
pub async fn open<S: Stream>(stream: S, purpose: Purpose) -> Result<(Answer, Opened<S>)> {
    let (reader, writer) = tokio::io::split(stream);
    let (mut reader, mut writer) = (Reader::new(reader), Writer::new(writer));
    writer.message(&Open { version: VERSION, purpose }).await?;
    match reader.read_message().await? {
        Some(Answer::Refused { reason }) => Err(Error::Refused(reason)),
        Some(answer) => Ok((answer, (reader, writer))),
        None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended before the answer").into()),
    }
}

/// The guest's side: reads what the stream is for. The guest answers when it knows how it goes.
pub async fn accept<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    reader: &mut Reader<R>,
    writer: &mut Writer<W>,
) -> Result<Purpose> {
    let open: Open = reader.read_message().await?.ok_or_else(|| Error::Protocol("the stream was empty".into()))?;
    if open.version != VERSION {
        let reason = format!("this guest speaks version {VERSION} of the protocol, not {}", open.version);
        writer.message(&Answer::Refused { reason: reason.clone() }).await?;
        return Err(Error::Refused(reason));
    }
    Ok(open.purpose)
}
