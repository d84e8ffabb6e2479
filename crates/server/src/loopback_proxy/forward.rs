//! Forwards one connection from an instance to the engine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tarn_link::opening::Opened;
use tarn_link::{Stream, relay};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};

/// The timeouts of a forwarded connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// A connection without any data for this long is closed, so that a client that neither reads nor writes keeps no
    /// permit. The engine has stricter timeouts; this one is for clients that ignore them.
    idle: Duration,
    /// How long the client in the instance has to read the rest after the engine closed the connection.
    after_close: Duration,
}

/// The timeouts of every connection.
pub(super) const TIMEOUTS: Timeouts =
    Timeouts { idle: Duration::from_secs(15 * 60), after_close: Duration::from_secs(10) };

/// Copies data both ways until both sides have closed, or the engine has and the client does not read the rest in time,
/// or the connection is idle.
pub(super) async fn forward_connection(
    (mut reader, mut writer): Opened<Box<dyn Stream>>,
    connection: impl AsyncRead + AsyncWrite,
    timeouts: Timeouts,
) {
    let moved = AtomicU64::new(0);
    let count = |length: usize| {
        moved.fetch_add(length as u64, Ordering::Relaxed);
    };
    let (mut from, mut to) = tokio::io::split(connection);
    let to_engine = relay::link_to_connection(&mut reader, &mut to, count);
    let to_guest = relay::connection_to_link(&mut from, &mut writer, count);
    tokio::pin!(to_engine, to_guest);
    let forwarded = async {
        tokio::select! {
            ended = &mut to_engine => {
                if ended.is_ok() {
                    let _ = to_guest.await;
                }
            }
            ended = &mut to_guest => {
                if ended.is_ok() {
                    let _ = timeout(timeouts.after_close, to_engine).await;
                }
            }
        }
    };
    tokio::select! {
        () = forwarded => {}
        () = wait_until_idle(&moved, timeouts.idle) => {}
    }
}

async fn wait_until_idle(moved: &AtomicU64, idle: Duration) {
    let mut before = None;
    loop {
        let now = moved.load(Ordering::Relaxed);
        if before == Some(now) {
            return;
        }
        before = Some(now);
        sleep(idle).await;
    }
}

#[cfg(test)]
mod tests {
    use tarn_link::{Frame, Purpose, Reader, Reply, Writer, opening};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const SHORT: Duration = Duration::from_millis(10);
    const LONG: Duration = Duration::from_secs(3600);

    type Guest = (Reader<ReadHalf<DuplexStream>>, Writer<WriteHalf<DuplexStream>>);

    /// Both ends of a forwarded connection: the guest's and the engine's.
    async fn forwarded(timeouts: Timeouts) -> (Guest, TcpStream, impl Future<Output = ()>) {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (reader, writer) = tokio::io::split(theirs);
        let (mut reader, mut writer) = (Reader::new(reader), Writer::new(writer));
        let guest = async {
            opening::accept(&mut reader, &mut writer).await.unwrap();
            writer.message(&Reply::Ready).await.unwrap();
        };
        let stream: Box<dyn Stream> = Box::new(ours);
        let (opened, ()) = tokio::join!(opening::open(stream, Purpose::Take { id: 1 }), guest);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        ((reader, writer), far.unwrap().0, forward_connection(opened.unwrap().1, near.unwrap(), timeouts))
    }

    /// Data that is sent before a close arrives.
    #[tokio::test]
    async fn data_before_close_arrives() {
        let ((mut reader, mut writer), mut engine, forwarding) = forwarded(TIMEOUTS).await;
        let inside = async {
            writer.data(b"question").await.unwrap();
            writer.eof().await.unwrap();
            assert_eq!(reader.read().await.unwrap(), Some(Frame::Data("answer".into())));
            assert_eq!(reader.read().await.unwrap(), Some(Frame::Eof));
        };
        let outside = async {
            let mut said = String::new();
            engine.read_to_string(&mut said).await.unwrap();
            assert_eq!(said, "question");
            engine.write_all(b"answer").await.unwrap();
            drop(engine);
        };
        tokio::join!(inside, outside, forwarding);
    }

    /// The client in the instance cannot hold a connection that the engine closed.
    #[tokio::test]
    async fn closed_engine_side_ends_connection() {
        let (_guest, engine, forwarding) = forwarded(Timeouts { idle: LONG, after_close: SHORT }).await;
        drop(engine);
        timeout(LONG / 60, forwarding).await.expect("the close by the engine is enough");
    }

    /// An idle connection is closed.
    #[tokio::test]
    async fn idle_connection_is_closed() {
        let (_guest, _engine, forwarding) = forwarded(Timeouts { idle: SHORT, after_close: LONG }).await;
        timeout(LONG / 60, forwarding).await.expect("it ends although neither side closed it");
    }
}
