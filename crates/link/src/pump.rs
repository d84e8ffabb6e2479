//! Carries data between a link stream and a connection, one direction each. When a whole connection is over is for the caller
//! to say, because the engine and the guest have different patience.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::frames::MAX_DATA;
use crate::{Error, Frame, Reader, Result, Writer};

/// Passes on what comes over the link until its end, and then says the end to the connection. `moved` is told of each piece.
/// A connection that takes no more may still have something to give: what is left for it is dropped, and that is no failure.
pub async fn to_connection<R, W>(reader: &mut Reader<R>, to: &mut W, moved: impl Fn(usize)) -> Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut is_open = true;
    loop {
        match reader.read().await? {
            Some(Frame::Data(data)) if is_open => {
                is_open = to.write_all(&data).await.is_ok();
                moved(data.len());
            }
            Some(Frame::Data(_) | Frame::Stderr(_)) => {}
            Some(Frame::Eof) => break,
            Some(Frame::Message(_)) => return Err(Error::Protocol("a connection knows no messages".into())),
            None => return Err(Error::Protocol("the stream ended before its data".into())),
        }
    }
    let _ = to.shutdown().await;
    Ok(())
}

/// Passes on what the connection says until its end, and then says the end to the link. `moved` is told of each piece. A
/// connection that breaks has ended, too.
pub async fn to_link<R, W>(from: &mut R, writer: &mut Writer<W>, moved: impl Fn(usize)) -> Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; MAX_DATA];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        writer.data(&buffer[..length]).await?;
        moved(length);
    }
    writer.eof().await
}
