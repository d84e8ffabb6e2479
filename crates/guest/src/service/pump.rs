//! Data both ways between a link stream and a connection, until each side has sent its end.

use tarn_link::frames::MAX_DATA;
use tarn_link::{Error, Frame, Reader, Result, Stream, Writer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Carries data until both directions have ended, or the link stream breaks.
pub(super) async fn run<R, W>(connection: Box<dyn Stream>, mut reader: Reader<R>, mut writer: Writer<W>) -> Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (mut from, mut to) = tokio::io::split(connection);
    let inwards = async {
        // A connection that takes no more data may still have some to give: its error is not the end of the other way.
        let mut is_open = true;
        loop {
            match reader.read().await? {
                Some(Frame::Data(data)) if is_open => is_open = to.write_all(&data).await.is_ok(),
                Some(Frame::Data(_) | Frame::Stderr(_)) => {}
                Some(Frame::Eof) => break,
                Some(Frame::Message(_)) => return Err(Error::Protocol("a connection knows no messages".into())),
                None => return Err(Error::Protocol("the stream ended before its data".into())),
            }
        }
        let _ = to.shutdown().await;
        Ok(())
    };
    let outwards = async {
        let mut buffer = vec![0; MAX_DATA];
        // A connection that breaks has ended, too.
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            writer.data(&buffer[..length]).await?;
        }
        writer.eof().await
    };
    tokio::try_join!(inwards, outwards).map(|_| ())
}
