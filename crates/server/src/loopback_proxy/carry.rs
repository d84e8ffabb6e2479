//! One connection through a door, from its first byte to its end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tarn_link::opening::Opened;
use tarn_link::{Stream, relay};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// How long a connection may last without any use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// One on which nothing has moved for so long is ended: whoever never reads or never writes keeps no slot. What the engine
    /// thinks of silence is stricter; this is for those who do not hear it.
    idle: Duration,
    /// When the engine has said all and closed, the inside has so long to see it.
    last_words: Duration,
}

/// What every connection is granted.
pub(super) const PATIENCE: Patience =
    Patience { idle: Duration::from_secs(15 * 60), last_words: Duration::from_secs(10) };

/// Carries data both ways until both sides have said all, or the engine has and nobody inside wants to know, or nothing moves.
pub(super) async fn carry(
    (mut reader, mut writer): Opened<Box<dyn Stream>>,
    connection: TcpStream,
    patience: Patience,
) {
    let moved = AtomicU64::new(0);
    let count = |length: usize| {
        moved.fetch_add(length as u64, Ordering::Relaxed);
    };
    let (mut from, mut to) = connection.into_split();
    let questions = relay::link_to_connection(&mut reader, &mut to, count);
    let answers = relay::connection_to_link(&mut from, &mut writer, count);
    tokio::pin!(questions, answers);
    let carried = async {
        tokio::select! {
            ended = &mut questions => {
                if ended.is_ok() {
                    let _ = answers.await;
                }
            }
            ended = &mut answers => {
                if ended.is_ok() {
                    let _ = timeout(patience.last_words, questions).await;
                }
            }
        }
    };
    tokio::select! {
        () = carried => {}
        () = stands_still(&moved, patience.idle) => {}
    }
}

async fn stands_still(moved: &AtomicU64, idle: Duration) {
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
    use tarn_link::{Answer, Frame, Purpose, Reader, Writer, opening};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
    use tokio::net::TcpListener;

    use super::*;

    const SHORT: Duration = Duration::from_millis(10);
    const LONG: Duration = Duration::from_secs(3600);

    type Guest = (Reader<ReadHalf<DuplexStream>>, Writer<WriteHalf<DuplexStream>>);

    /// Both ends of a connection that is carried: the guest's and the engine's.
    async fn carried(patience: Patience) -> (Guest, TcpStream, impl Future<Output = ()>) {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (reader, writer) = tokio::io::split(theirs);
        let (mut reader, mut writer) = (Reader::new(reader), Writer::new(writer));
        let guest = async {
            opening::accept(&mut reader, &mut writer).await.unwrap();
            writer.message(&Answer::Ready).await.unwrap();
        };
        let stream: Box<dyn Stream> = Box::new(ours);
        let (opened, ()) = tokio::join!(opening::open(stream, Purpose::Take { id: 1 }), guest);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        ((reader, writer), far.unwrap().0, carry(opened.unwrap().1, near.unwrap(), patience))
    }

    #[tokio::test]
    async fn what_is_said_before_an_end_arrives() {
        let ((mut reader, mut writer), mut engine, carrying) = carried(PATIENCE).await;
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
        tokio::join!(inside, outside, carrying);
    }

    #[tokio::test]
    async fn an_engine_that_has_closed_is_not_held_from_inside() {
        let (_guest, engine, carrying) = carried(Patience { idle: LONG, last_words: SHORT }).await;
        drop(engine);
        timeout(LONG / 60, carrying).await.expect("the end of the engine is enough");
    }

    #[tokio::test]
    async fn where_nothing_moves_nothing_stays() {
        let (_guest, _engine, carrying) = carried(Patience { idle: SHORT, last_words: LONG }).await;
        timeout(LONG / 60, carrying).await.expect("it ends although nobody has ended it");
    }
}
