//! Accepts connections until it is stopped.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::task::AtomicWaker;
use russh::Disconnect;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::connection::{ConnectionContext, ConnectionHandler};
use crate::connection_limits::{ConnectionLimiter, ConnectionPermit};
use crate::{Authorizer, Settings, Target};

/// How long a connection may take to disconnect when the server stops.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves SSH on a listener until `stop` completes, then ends all connections. Changed settings apply to new
/// connections, except for the limits of connections and failures.
pub async fn serve(
    listener: TcpListener,
    settings: watch::Receiver<Arc<Settings>>,
    authorizer: Arc<dyn Authorizer>,
    stop: impl Future<Output = ()>,
) {
    let limiter = ConnectionLimiter::new(&settings.borrow().limits);
    let (stopping, _) = watch::channel(false);
    let mut connections = JoinSet::new();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => {
                    let settings = settings.borrow().clone();
                    // A connection above a limit is closed without a greeting.
                    if let Some(permit) = limiter.try_admit(from.ip(), Instant::now()) {
                        let (authorizer, stopping) = (authorizer.clone(), stopping.subscribe());
                        let connection = AcceptedConnection { settings, authorizer, permit, stopping };
                        connections.spawn(connection.serve_connection(stream, from));
                    }
                }
                Err(error) => {
                    // Most likely no descriptors are left: other connections must end first.
                    tracing::warn!(%error, "an SSH connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    stopping.send_replace(true);
    while connections.join_next().await.is_some() {}
}

struct AcceptedConnection {
    settings: Arc<Settings>,
    authorizer: Arc<dyn Authorizer>,
    permit: ConnectionPermit,
    stopping: watch::Receiver<bool>,
}

impl AcceptedConnection {
    async fn serve_connection(mut self, stream: TcpStream, from: SocketAddr) {
        let Ok(to) = stream.local_addr() else { return };
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let (logged_in, mut has_logged_in) = watch::channel(None);
        let abort_handle = Arc::new(AbortHandle::default());
        let wire = AbortableStream::new(stream, abort_handle.clone());
        let context = ConnectionContext { settings: self.settings.clone(), authorizer: self.authorizer, from, to };
        let displaced = self.permit.displaced();
        let handler = ConnectionHandler::new(context, self.permit, logged_in);
        let grace = tokio::time::sleep(self.settings.limits.grace);
        tokio::pin!(grace);
        let started = tokio::select! {
            started = russh::server::run_stream(Arc::new(self.settings.config()), wire, handler) => started,
            () = &mut grace => return,
            () = displaced.notified() => return,
            () = wait_until_set(&mut self.stopping) => return,
        };
        let Ok(mut session) = started else { return };
        let handle = session.handle();
        let target = tokio::select! {
            _ = &mut session => return,
            target = wait_until_logged_in(&mut has_logged_in) => target,
            () = &mut grace => return abort_handle.abort(),
            () = displaced.notified() => return abort_handle.abort(),
            () = wait_until_set(&mut self.stopping) => return abort_handle.abort(),
        };
        let message = tokio::select! {
            _ = &mut session => return,
            () = wait_until_set(&mut self.stopping) => "the server is stopping".to_owned(),
            why = target.ended() => format!("your access ended: {why}"),
        };
        let disconnect = handle.disconnect(Disconnect::ByApplication, message, "en".into());
        let end = async {
            let _ = disconnect.await;
            let _ = (&mut session).await;
        };
        let _ = tokio::time::timeout(DISCONNECT_TIMEOUT, end).await;
        abort_handle.abort();
    }
}

/// Waits until the client has logged in, and returns what the connection leads to; forever if it never does.
async fn wait_until_logged_in(logged_in: &mut watch::Receiver<Option<Arc<dyn Target>>>) -> Arc<dyn Target> {
    let target = logged_in.wait_for(Option::is_some).await.ok().and_then(|target| target.clone());
    match target {
        Some(target) => target,
        None => std::future::pending().await,
    }
}

/// Waits until the flag is set; forever if its sender is gone.
async fn wait_until_set(flag: &mut watch::Receiver<bool>) {
    if flag.wait_for(|set| *set).await.is_err() {
        std::future::pending().await
    }
}

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
