//! The connection under the protocol: it reads far ahead, and it can be ended from outside.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use futures::task::AtomicWaker;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::net::TcpStream;

/// Packets are read by their length first: without a buffer each would take two calls of the system.
const READ_AHEAD: usize = 256 << 10;

/// Ends a connection that the protocol's library holds.
#[derive(Debug, Default)]
pub(crate) struct Cutter {
    cut: AtomicBool,
    reader: AtomicWaker,
    writer: AtomicWaker,
}

impl Cutter {
    /// Whatever is read or written from now on fails.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Release);
        self.reader.wake();
        self.writer.wake();
    }

    fn check(&self, waker: &AtomicWaker, context: &Context<'_>) -> io::Result<()> {
        // Registered first, so that a cut between the two lines is not missed.
        waker.register(context.waker());
        match self.cut.load(Ordering::Acquire) {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }
}

/// A connection that can be cut.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: BufReader<TcpStream>,
    cutter: Arc<Cutter>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream, cutter: Arc<Cutter>) -> Wire {
        Wire { stream: BufReader::with_capacity(READ_AHEAD, stream), cutter }
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.cutter.check(&self.cutter.reader, context)?;
        // Through the buffer always: a reader of large pieces would go around it and read no further than its piece.
        let available = ready!(Pin::new(&mut self.stream).poll_fill_buf(context))?;
        let length = available.len().min(into.remaining());
        into.put_slice(&available[..length]);
        Pin::new(&mut self.stream).consume(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.cutter.check(&self.cutter.writer, context)?;
        Pin::new(self.stream.get_mut()).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_shutdown(context)
    }
}
