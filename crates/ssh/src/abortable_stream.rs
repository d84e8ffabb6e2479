//! The TCP stream below the SSH protocol: it reads far ahead, and it can be aborted from outside.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use futures::task::AtomicWaker;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::net::TcpStream;

/// The library reads the length of a packet first: without a buffer, each packet would take two system calls.
const READ_AHEAD: usize = 256 << 10;

/// Aborts a connection that the SSH library owns.
#[derive(Debug, Default)]
pub(crate) struct AbortHandle {
    is_aborted: AtomicBool,
    reader: AtomicWaker,
    writer: AtomicWaker,
}

impl AbortHandle {
    /// Makes all further reads and writes fail.
    pub(crate) fn abort(&self) {
        self.is_aborted.store(true, Ordering::Release);
        self.reader.wake();
        self.writer.wake();
    }

    fn check_aborted(&self, waker: &AtomicWaker, context: &Context<'_>) -> io::Result<()> {
        // Registers first, so that an abort between the two lines is not missed.
        waker.register(context.waker());
        if self.is_aborted.load(Ordering::Acquire) { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }
}

/// A TCP stream that can be aborted.
#[derive(Debug)]
pub(crate) struct AbortableStream {
    stream: BufReader<TcpStream>,
    abort_handle: Arc<AbortHandle>,
}

impl AbortableStream {
    pub(crate) fn new(stream: TcpStream, abort_handle: Arc<AbortHandle>) -> AbortableStream {
        AbortableStream { stream: BufReader::with_capacity(READ_AHEAD, stream), abort_handle }
    }
}

impl AsyncRead for AbortableStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.abort_handle.check_aborted(&self.abort_handle.reader, context)?;
        // Always reads through the buffer: a large read would bypass it and read no further.
        let available = ready!(Pin::new(&mut self.stream).poll_fill_buf(context))?;
        let length = available.len().min(into.remaining());
        into.put_slice(&available[..length]);
        Pin::new(&mut self.stream).consume(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for AbortableStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.abort_handle.check_aborted(&self.abort_handle.writer, context)?;
        Pin::new(self.stream.get_mut()).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_shutdown(context)
    }
}
