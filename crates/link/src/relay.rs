//! Copies data between a link stream and a connection, one direction per function. The caller decides when the whole
//! connection ends, because the engine and the guest have different timeouts.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::frames::MAX_DATA;
use crate::{Error, Frame, Reader, Result, Writer};

/// Copies data from the link to the connection until the end of data, then shuts the connection's write side down.
/// Calls `on_moved` with the length of each piece. A connection that accepts no more data may still send some: the
/// remaining data for it is dropped, which is not an error.
pub async fn link_to_connection<R, W>(reader: &mut Reader<R>, to: &mut W, on_moved: impl Fn(usize)) -> Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut is_open = true;
    loop {
        match reader.read().await? {
            Some(Frame::Data(data)) if is_open => {
                is_open = to.write_all(&data).await.is_ok();
                on_moved(data.len());
            }
            Some(Frame::Data(_) | Frame::Stderr(_)) => {}
            Some(Frame::Eof) => break,
            Some(Frame::Message(_)) => return Err(Error::Protocol("a message arrived on a connection stream".into())),
            None => return Err(Error::Protocol("the stream ended before the end of data".into())),
        }
    }
    let _ = to.shutdown().await;
    Ok(())
}

/// Copies data from the connection to the link until it ends, then sends the end of data. Calls `on_moved` with the
/// length of each piece. A connection that breaks counts as ended.
pub async fn connection_to_link<R, W>(from: &mut R, writer: &mut Writer<W>, on_moved: impl Fn(usize)) -> Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; MAX_DATA];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        writer.data(&buffer[..length]).await?;
        on_moved(length);
    }
    writer.eof().await
}
