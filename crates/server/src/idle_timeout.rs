//! Streams with an idle timeout for writes: a peer that stops reading in the middle of a response is disconnected,
//! because it holds a connection permit and the resources of the response. This module does not know what is written.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum_server::accept::{Accept, NoDelayAcceptor};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// Accepts connections and gives them the idle timeout.
#[derive(Clone, Copy)]
pub(crate) struct Acceptor {
    /// How long a peer may read nothing while data waits for it.
    pub(crate) idle_timeout: Duration,
}

/// Enables TCP keep-alive: a peer that vanished without closing would otherwise hold its connection for ever while
/// nothing is written to it.
fn enable_keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(30))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(10))?;
    Ok(sockopt::set_tcp_keepcnt(stream, 4)?)
}

impl<S> Accept<TcpStream, S> for Acceptor {
    type Stream = WriteTimeoutStream<TcpStream>;
    type Service = S;
    type Future = std::future::Ready<io::Result<(Self::Stream, S)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let accepted =
            enable_keep_alive(&stream).and_then(|()| NoDelayAcceptor::new().accept(stream, service).into_inner());
        std::future::ready(
            accepted.map(|(stream, service)| (WriteTimeoutStream::new(stream, self.idle_timeout), service)),
        )
    }
}

/// A stream that fails when a write makes no progress for the idle timeout.
pub(crate) struct WriteTimeoutStream<S> {
    stream: S,
    idle_timeout: Duration,
    /// Runs while a write is pending.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeoutStream<S> {
    fn new(stream: S, idle_timeout: Duration) -> Self {
        WriteTimeoutStream { stream, idle_timeout, stalled: None }
    }

    /// Fails a write that stays pending for the idle timeout.
    fn fail_when_stalled<T>(&mut self, ctx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let idle_timeout = self.idle_timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(idle_timeout)));
        stalled.as_mut().poll(ctx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeoutStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(ctx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeoutStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(ctx, bytes);
        self.fail_when_stalled(ctx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(ctx, slices);
        self.fail_when_stalled(ctx, written)
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// Accepted connections have TCP keep-alive.
    #[tokio::test]
    async fn accepted_connections_have_keep_alive() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (peer, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (stream, ()) = Acceptor { idle_timeout: Duration::ZERO }.accept(accepted.unwrap().0, ()).await.unwrap();
        assert!(sockopt::socket_keepalive(&stream.stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream.stream).unwrap(), Duration::from_secs(30));
        drop(peer);
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
        let mut stream = WriteTimeoutStream::new(near, Duration::from_millis(500));
        stream.write_all(&[1; 1600]).await.unwrap();
        let far = reading.await.unwrap();
        let stuck = stream.write_all(&[2; 1600]).await.unwrap_err();
        assert_eq!(stuck.kind(), io::ErrorKind::TimedOut);
        drop(far);
    }
}
