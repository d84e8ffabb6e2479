//! The byte streams below a connection: from the network or from an instance, with the framing of its messages.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;

use super::framing::Framing;

/// Where the bytes come from.
pub(crate) enum Transport {
    Network(TcpStream),
    /// The loopback proxy of an instance.
    Instance(DuplexStream),
}

impl AsyncRead for Transport {
    fn poll_read(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Transport::Network(stream) => Pin::new(stream).poll_read(ctx, buffer),
            Transport::Instance(stream) => Pin::new(stream).poll_read(ctx, buffer),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Transport::Network(stream) => Pin::new(stream).poll_write(ctx, bytes),
            Transport::Instance(stream) => Pin::new(stream).poll_write(ctx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Transport::Network(stream) => Pin::new(stream).poll_write_vectored(ctx, slices),
            Transport::Instance(stream) => Pin::new(stream).poll_write_vectored(ctx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Transport::Network(stream) => stream.is_write_vectored(),
            Transport::Instance(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Transport::Network(stream) => Pin::new(stream).poll_flush(ctx),
            Transport::Instance(stream) => Pin::new(stream).poll_flush(ctx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Transport::Network(stream) => Pin::new(stream).poll_shutdown(ctx),
            Transport::Instance(stream) => Pin::new(stream).poll_shutdown(ctx),
        }
    }
}

/// A stream whose messages are followed while they are read.
pub(super) struct FollowedStream<S> {
    pub(super) stream: S,
    pub(super) framing: Framing,
}

impl<S: AsyncRead + Unpin> AsyncRead for FollowedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(ctx, buffer);
        if read.is_ready() {
            self.framing.follow(&buffer.filled()[before..]);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FollowedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(ctx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(ctx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(ctx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(ctx)
    }
}
