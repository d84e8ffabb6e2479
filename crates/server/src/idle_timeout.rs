//! Idle timeouts: a peer that stops reading in the middle of a response is disconnected, and a body that stops arriving
//! fails, because both hold a connection and other resources that others need. This module does not know what is sent.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use rustix::net::sockopt;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// How much the kernel takes that it cannot send yet: as much as a download reads at a time.
const UNSENT_BYTES: u32 = 256 << 10;

/// Enables TCP keep-alive: a peer that vanished without closing would otherwise hold its connection for ever while
/// nothing is written to it.
pub(crate) fn enable_keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(30))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(10))?;
    Ok(sockopt::set_tcp_keepcnt(stream, 4)?)
}

/// Limits how much the kernel takes for a peer that does not read. What is on its way to the peer does not count, so
/// that connections over long distances are as fast as before. Without it the kernel keeps some megabytes for each.
pub(crate) fn limit_unsent_bytes(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES)
}

/// Measures how long there is no progress.
struct IdleTimer {
    timeout: Duration,
    /// Runs while nothing is ready.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl IdleTimer {
    fn new(timeout: Duration) -> Self {
        IdleTimer { timeout, stalled: None }
    }

    /// Returns the progress, or an error when it has been pending for the timeout.
    fn poll_progress<T>(&mut self, ctx: &mut Context<'_>, progress: Poll<T>) -> Poll<io::Result<T>> {
        if let Poll::Ready(progress) = progress {
            self.stalled = None;
            return Poll::Ready(Ok(progress));
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(self.timeout)));
        let late = || io::Error::new(io::ErrorKind::TimedOut, "there was no progress within the idle timeout");
        stalled.as_mut().poll(ctx).map(|()| Err(late()))
    }
}

/// Returns a body that fails when no data arrives for the given time. tower-http's `TimeoutBody` does not know its
/// length, and fails when the receiver is slow.
pub fn with_idle_timeout(body: Body, timeout: Duration) -> Body {
    if body.is_end_stream() { body } else { Body::new(IdleTimeoutBody { body, timer: IdleTimer::new(timeout) }) }
}

struct IdleTimeoutBody {
    body: Body,
    timer: IdleTimer,
}

impl HttpBody for IdleTimeoutBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(ctx);
        self.timer.poll_progress(ctx, frame).map(|frame| frame.unwrap_or_else(|late| Some(Err(axum::Error::new(late)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that fails when nothing arrives at its beginning, or when a write makes no progress.
pub(crate) struct IdleTimeoutStream<S> {
    stream: S,
    /// Until the first bytes have arrived.
    first_read: Option<IdleTimer>,
    timer: IdleTimer,
}

impl<S> IdleTimeoutStream<S> {
    /// Adds the timeouts of the first read and of every write.
    pub(crate) fn new(stream: S, first_read: Duration, idle_timeout: Duration) -> Self {
        let first_read = Some(IdleTimer::new(first_read));
        IdleTimeoutStream { stream, first_read, timer: IdleTimer::new(idle_timeout) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for IdleTimeoutStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(ctx, buffer);
        let Some(timer) = &mut self.first_read else { return read };
        let read = timer.poll_progress(ctx, read).map(io::Result::flatten);
        if read.is_ready() {
            self.first_read = None;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for IdleTimeoutStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(ctx, bytes);
        self.timer.poll_progress(ctx, written).map(io::Result::flatten)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(ctx, slices);
        self.timer.poll_progress(ctx, written).map(io::Result::flatten)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// A socket has nothing to flush and returns at once, which is no progress; so this neither starts nor stops the
    /// timeout.
    fn poll_flush(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(ctx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(ctx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use futures::stream::{self, StreamExt};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// Accepted connections have TCP keep-alive, and the kernel takes little for a peer that does not read.
    #[tokio::test]
    async fn accepted_connections_have_options() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (peer, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (stream, _) = accepted.unwrap();
        enable_keep_alive(&stream).unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), Duration::from_secs(30));
        limit_unsent_bytes(&stream).unwrap();
        let (mut stream, mut taken, piece) = (stream.into_std().unwrap(), 0, vec![0; 64 << 10]);
        // The peer reads nothing, and the stream does not block.
        while let Ok(count) = stream.write(&piece) {
            taken += count;
            assert!(taken < 1 << 20, "the kernel takes too much");
        }
        assert!(taken >= UNSENT_BYTES as usize, "{taken} are too few for a fast peer");
        drop(peer);
    }

    /// Only the beginning of a stream has to arrive in time.
    #[tokio::test(start_paused = true)]
    async fn silent_peer_times_out() {
        let (near, mut far) = duplex(16);
        let mut stream = IdleTimeoutStream::new(near, Duration::from_secs(5), Duration::from_secs(60));
        far.write_all(b"a").await.unwrap();
        stream.read_exact(&mut [0]).await.unwrap();
        let later = tokio::time::timeout(Duration::from_secs(600), stream.read_exact(&mut [0])).await;
        assert!(later.is_err(), "a later pause is not limited here");
        let (near, _far) = duplex(16);
        let mut stream = IdleTimeoutStream::new(near, Duration::from_secs(5), Duration::from_secs(60));
        assert_eq!(stream.read_exact(&mut [0]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    /// A slow reader is served, and a peer that does not read is disconnected.
    #[tokio::test(start_paused = true)]
    async fn stalled_reader_times_out() {
        let (near, mut far) = duplex(16);
        // Each read is in time, and all of them together take longer than the timeout.
        let reading = tokio::spawn(async move {
            let mut taken = 0;
            while taken < 1600 {
                tokio::time::sleep(Duration::from_millis(10)).await;
                taken += far.read(&mut [0; 16]).await.unwrap();
            }
            far
        });
        let mut stream = IdleTimeoutStream::new(near, Duration::MAX, Duration::from_millis(500));
        stream.write_all(&[1; 1600]).await.unwrap();
        let far = reading.await.unwrap();
        let stuck = stream.write_all(&[2; 1600]).await.unwrap_err();
        assert_eq!(stuck.kind(), io::ErrorKind::TimedOut);
        drop(far);
    }

    #[tokio::test]
    async fn idle_body_fails() {
        let pieces = || stream::iter([Ok::<_, axum::Error>(Bytes::from_static(b"a")), Ok(Bytes::from_static(b"b"))]);
        let whole = with_idle_timeout(Body::from_stream(pieces()), Duration::from_secs(60));
        assert_eq!(axum::body::to_bytes(whole, 100).await.unwrap(), "ab");
        let silent = with_idle_timeout(Body::from_stream(pieces().chain(stream::pending())), Duration::from_millis(1));
        let error = axum::body::to_bytes(silent, 100).await.unwrap_err();
        assert!(format!("{error:?}").contains("idle timeout"), "{error:?}");
    }

    #[test]
    fn length_stays_known() {
        let body = with_idle_timeout(Body::from("four"), Duration::from_secs(60));
        assert_eq!(body.size_hint().exact(), Some(4));
        assert!(with_idle_timeout(Body::empty(), Duration::from_secs(60)).is_end_stream());
    }
}
