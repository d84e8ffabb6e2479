//! Relays data both ways between a link stream and a connection, until each side has sent its end.

use tarn_link::{Reader, Result, Stream, Writer, relay};
use tokio::io::{AsyncRead, AsyncWrite};

/// Relays data until both directions have ended, or the link stream breaks.
pub(super) async fn relay_connection<R, W>(
    connection: Box<dyn Stream>,
    mut reader: Reader<R>,
    mut writer: Writer<W>,
) -> Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (mut from, mut to) = tokio::io::split(connection);
    let inwards = relay::link_to_connection(&mut reader, &mut to, |_| ());
    let outwards = relay::connection_to_link(&mut from, &mut writer, |_| ());
    tokio::try_join!(inwards, outwards).map(|_| ())
}
