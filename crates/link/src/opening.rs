//! How a stream is opened, on the side of the engine and on the side of the guest.

use std::io;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};

use crate::{Error, Purpose, Reader, Reply, Result, Stream, VERSION, Writer};

#[derive(Debug, Serialize, Deserialize)]
struct Open {
    version: u16,
    purpose: Purpose,
}

/// Both directions of an open stream.
pub type Opened<S> = (Reader<ReadHalf<S>>, Writer<WriteHalf<S>>);

/// Opens a stream on the engine's side: sends the purpose and waits for the reply. The caller limits the time.
pub async fn open<S: Stream>(stream: S, purpose: Purpose) -> Result<(Reply, Opened<S>)> {
    let (reader, writer) = tokio::io::split(stream);
    let (mut reader, mut writer) = (Reader::new(reader), Writer::new(writer));
    writer.message(&Open { version: VERSION, purpose }).await?;
    match reader.read_message().await? {
        Some(Reply::Refused { reason }) => Err(Error::Refused(reason)),
        Some(answer) => Ok((answer, (reader, writer))),
        None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended before the reply").into()),
    }
}

/// Accepts a stream on the guest's side: reads its purpose. The guest sends the reply once it knows the result.
pub async fn accept<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    reader: &mut Reader<R>,
    writer: &mut Writer<W>,
) -> Result<Purpose> {
    let open: Open = reader
        .read_message()
        .await?
        .ok_or_else(|| Error::Protocol("the stream ended before its first message".into()))?;
    if open.version != VERSION {
        let reason = format!("this guest speaks version {VERSION} of the protocol, not {}", open.version);
        writer.message(&Reply::Refused { reason: reason.clone() }).await?;
        return Err(Error::Refused(reason));
    }
    Ok(open.purpose)
}
