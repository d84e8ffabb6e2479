//! The HTTP listener: an accept loop with limits per address, timeouts, TLS and a graceful shutdown
//! ([decision 23](../../../../docs/decisions/0023-accept-loop.md)).
//!
//! Start reading at [`serve`]; `connections` decides which connection makes room for another, `calls` what every call
//! passes, `forwarded` limits the calls behind proxies, `framing` and `stream` are below both, and `client_address`
//! and `tls` are what the operator configures.

mod calls;
mod client_address;
mod connections;
mod forwarded;
mod framing;
mod stream;
mod tls;

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tarn_model::ids::InstanceId;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::idle_timeout::{IdleTimeoutStream, enable_keep_alive, limit_unsent_bytes};
use calls::Calls;
use connections::{Admitted, ConnectionLimits, ConnectionState, Connections, Peer};
use forwarded::ForwardedCalls;
use framing::{Framing, FramingFacts};
use stream::{FollowedStream, Transport};

pub(crate) use calls::ConnectionOfCall;
pub use client_address::{ClientAddress, TrustedNetwork, TrustedProxies};
pub(crate) use connections::{UserConnections, network_of};
pub use forwarded::RefusalForm;
pub use tls::Tls;

/// How much of a call a connection buffers, and so also how large its head may be. More would not make uploads faster.
const CONNECTION_BYTES: usize = 128 << 10;

/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How a listener serves.
#[derive(Debug, Default)]
pub struct Listening {
    /// Without it the listener speaks plain HTTP.
    pub tls: Option<Tls>,
    pub trusted_proxies: TrustedProxies,
    /// The connections from inside the instances.
    pub from_instances: Option<mpsc::Receiver<InstanceConnection>>,
    pub refusals: RefusalForm,
}

/// A connection from inside an instance, for which it counts.
#[derive(Debug)]
pub struct InstanceConnection {
    pub stream: DuplexStream,
    pub instance: InstanceId,
    /// The address of the instance, if it is known.
    pub address: Option<IpAddr>,
}

/// The timeouts of connections.
#[derive(Clone, Copy, Debug)]
struct Timeouts {
    /// How long a new connection may be silent.
    first_byte: Duration,
    /// How long the TLS handshake may take.
    handshake: Duration,
    /// How long a client may take to send the head of a call, and so also how long a connection may be idle.
    head: Duration,
    /// How long a client may read nothing of a response.
    response_idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            first_byte: Duration::from_secs(5),
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(30),
            response_idle: Duration::from_secs(60),
        }
    }
}

/// Serves until `shutdown` completes. Then no connection is accepted, idle connections are closed, and running calls
/// have `drain` to end.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    listening: Listening,
    shutdown: impl Future<Output = ()> + Send + 'static,
    drain: Duration,
) -> io::Result<()> {
    let server = Server::new(router, &listening, ConnectionLimits::default(), Timeouts::default());
    server.serve(listener, listening.from_instances, shutdown, drain).await
}

/// What all connections of a listener share.
struct Server {
    router: Router,
    tls: Option<Tls>,
    proxies: Arc<TrustedProxies>,
    connections: Arc<Connections>,
    forwarded: Arc<ForwardedCalls>,
    http: http1::Builder,
    timeouts: Timeouts,
    /// Whether the server is stopping; one of the constants below.
    stopping: AtomicU8,
}

/// Running calls may end.
const DRAINING: u8 = 1;
/// Everything ends.
const ENDING: u8 = 2;

impl Server {
    fn new(router: Router, listening: &Listening, limits: ConnectionLimits, timeouts: Timeouts) -> Arc<Server> {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(timeouts.head).max_buf_size(CONNECTION_BYTES);
        Arc::new(Server {
            router,
            tls: listening.tls.clone(),
            proxies: Arc::new(listening.trusted_proxies.clone()),
            connections: Connections::new(limits),
            forwarded: Arc::new(ForwardedCalls::new(listening.refusals)),
            http,
            timeouts,
            stopping: AtomicU8::new(0),
        })
    }

    async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        mut from_instances: Option<mpsc::Receiver<InstanceConnection>>,
        shutdown: impl Future<Output = ()>,
        drain: Duration,
    ) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        // Every task holds a sender, so that the channel is closed when all have ended.
        let (alive, mut ended) = mpsc::channel::<Infallible>(1);
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, from)) => self.take_network_connection(stream, from.ip(), &alive),
                    Err(_) => {
                        // Most likely no descriptors are left.
                        self.connections.shed_one();
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                connection = next_connection(&mut from_instances) => {
                    let InstanceConnection { stream, instance, address } = connection;
                    self.take_connection(Transport::Instance(stream), Peer::Instance(instance), address, &alive);
                }
            }
        }
        drop((listener, from_instances, alive));
        self.set_stopping(DRAINING);
        let _ = timeout(drain, ended.recv()).await;
        self.set_stopping(ENDING);
        Ok(())
    }

    fn set_stopping(&self, stopping: u8) {
        self.stopping.store(stopping, Ordering::Release);
        self.connections.wake_all();
    }

    fn take_network_connection(self: &Arc<Self>, stream: TcpStream, from: IpAddr, alive: &mpsc::Sender<Infallible>) {
        // A client that has disconnected already makes these fail.
        if stream.set_nodelay(true).is_err() || enable_keep_alive(&stream).is_err() {
            return;
        }
        if let Err(error) = limit_unsent_bytes(&stream) {
            tracing::debug!(%error, "the kernel does not limit what it takes for a connection");
        }
        let address = from.to_canonical();
        let peer = if self.proxies.contain(address) { Peer::TrustedProxy } else { Peer::of_address(address) };
        self.take_connection(Transport::Network(stream), peer, Some(address), alive);
    }

    /// Serves a connection, unless a limit is reached; then it is closed.
    fn take_connection(
        self: &Arc<Self>,
        stream: Transport,
        peer: Peer,
        address: Option<IpAddr>,
        alive: &mpsc::Sender<Infallible>,
    ) {
        let proxies = (peer == Peer::TrustedProxy).then(|| (self.proxies.clone(), self.forwarded.clone()));
        let Some(admitted) = self.connections.admit(peer) else {
            metrics::counter!("tarn_connections_refused_total").increment(1);
            return;
        };
        let facts = Arc::new(FramingFacts::default());
        let calls = Calls {
            router: self.router.clone(),
            state: admitted.state.clone(),
            facts: facts.clone(),
            address,
            proxies,
            count: AtomicU32::new(0),
        };
        let (server, alive) = (self.clone(), alive.clone());
        tokio::spawn(async move {
            server.serve_connection(stream, calls, facts, admitted).await;
            drop(alive);
        });
    }

    async fn serve_connection(&self, stream: Transport, calls: Calls, facts: Arc<FramingFacts>, admitted: Admitted) {
        let state = &admitted.state;
        let stream = IdleTimeoutStream::new(stream, self.timeouts.first_byte, self.timeouts.response_idle);
        let framing = Framing::new(facts);
        let Some(tls) = &self.tls else {
            return self.serve_http(FollowedStream { stream, framing }, calls, state).await;
        };
        let mut handshake = pin!(timeout(self.timeouts.handshake, TlsAcceptor::from(tls.current()).accept(stream)));
        let handshake = poll_fn(|ctx| {
            state.register_waker(ctx.waker());
            if state.is_closed() || self.stopping.load(Ordering::Acquire) > 0 {
                return Poll::Ready(None);
            }
            handshake.as_mut().poll(ctx).map(|done| done.ok().and_then(Result::ok))
        });
        if let Some(stream) = handshake.await {
            self.serve_http(FollowedStream { stream, framing }, calls, state).await;
        }
    }

    async fn serve_http<S>(&self, stream: S, calls: Calls, state: &ConnectionState)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut serving = pin!(self.http.serve_connection(TokioIo::new(stream), calls).with_upgrades());
        let mut is_draining = false;
        poll_fn(|ctx| {
            // Registered first, so that a change after the checks is not missed.
            state.register_waker(ctx.waker());
            let stopping = self.stopping.load(Ordering::Acquire);
            if state.is_closed() || stopping == ENDING {
                return Poll::Ready(());
            }
            if stopping == DRAINING && !is_draining {
                is_draining = true;
                serving.as_mut().graceful_shutdown();
            }
            serving.as_mut().poll(ctx).map(drop)
        })
        .await;
    }
}

async fn next_connection(connections: &mut Option<mpsc::Receiver<InstanceConnection>>) -> InstanceConnection {
    match connections {
        Some(receiver) => match receiver.recv().await {
            Some(connection) => connection,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
