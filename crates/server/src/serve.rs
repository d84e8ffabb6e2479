//! Listening: connections in, answers out, and an orderly end.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::future::RouteFuture;
use axum_server::accept::NoDelayAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use axum_server::{Handle, Server};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{Service, service_fn};

/// How many connections may be open at once; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 4096;

/// How long a client may take for the head of a request, and so also how long a connection may idle.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);

/// Serves until `shutdown` is done. Then nothing new is accepted, idle connections are closed, and calls under way have
/// `drain` to end.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<ServerConfig>,
    shutdown: impl Future<Output = ()> + Send + 'static,
    drain: Duration,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let handle = Handle::new();
    let stopping = handle.clone();
    let waiting = tokio::spawn(async move {
        shutdown.await;
        stopping.graceful_shutdown(Some(drain));
    });
    let mut server = axum_server::from_tcp(listener)?.handle(handle);
    set_up_http(&mut server);
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let connections = service_fn(move |_: SocketAddr| {
        let (router, slots) = (router.clone(), slots.clone());
        async move {
            let slot = slots.acquire_owned().await.expect("the semaphore is never closed");
            Ok::<_, Infallible>(Connection { router, _slot: Arc::new(slot) })
        }
    });
    let outcome = match tls {
        None => server.acceptor(NoDelayAcceptor::new()).serve(connections).await,
        Some(mut config) => {
            // HTTP/1 is all that is spoken here, so nothing else is offered.
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            let acceptor = RustlsAcceptor::new(RustlsConfig::from_config(Arc::new(config)));
            server.acceptor(acceptor.acceptor(NoDelayAcceptor::new())).serve(connections).await
        }
    };
    waiting.abort();
    outcome
}

/// HTTP/1 only: its patience with heads counts from the first moment of a connection, and upgrades to WebSocket work.
fn set_up_http(server: &mut Server<SocketAddr>) {
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE);
    *server.http_builder() = builder;
}

/// The router on one connection; the slot is free again when the connection ends.
#[derive(Clone)]
struct Connection {
    router: Router,
    _slot: Arc<OwnedSemaphorePermit>,
}

impl<B> Service<Request<B>> for Connection
where
    B: axum::body::HttpBody<Data = axum::body::Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = RouteFuture<Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> RouteFuture<Infallible> {
        self.router.call(request)
    }
}
