//! The HTTP listener: connection limits, timeouts, TLS and a graceful shutdown.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::future::RouteFuture;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use axum_server::{Handle, Server};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{Service, service_fn};

use crate::idle_timeout::Acceptor;

/// How many connections may be open at once; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 4096;

/// How long a client may take to send the head of a call, and so also how long a connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How much of a call a connection buffers, and so also how large its head may be. More would not make uploads faster.
const CONNECTION_BYTES: usize = 128 << 10;

/// How long a client may read nothing of a response.
const RESPONSE_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Serves until `shutdown` completes. Then no connection is accepted, idle connections are closed, and running calls
/// have `drain` to end.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<ServerConfig>,
    shutdown: impl Future<Output = ()> + Send + 'static,
    drain: Duration,
) -> io::Result<()> {
    serve_with(listener, router, tls, shutdown, drain, RESPONSE_IDLE_TIMEOUT).await
}

async fn serve_with(
    listener: TcpListener,
    router: Router,
    tls: Option<ServerConfig>,
    shutdown: impl Future<Output = ()> + Send + 'static,
    drain: Duration,
    idle_timeout: Duration,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let handle = Handle::new();
    let stopping = handle.clone();
    let waiting = tokio::spawn(async move {
        shutdown.await;
        stopping.graceful_shutdown(Some(drain));
    });
    let mut server = axum_server::from_tcp(listener)?.handle(handle);
    configure_http(&mut server);
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let connections = service_fn(move |client: SocketAddr| {
        let (router, permits) = (router.clone(), permits.clone());
        async move {
            let permit = permits.acquire_owned().await.expect("the semaphore is never closed");
            let address = ClientAddress(client.ip().to_canonical());
            Ok::<_, Infallible>(Connection { router, address, _permit: Arc::new(permit) })
        }
    });
    let acceptor = Acceptor { idle_timeout };
    let outcome = match tls {
        None => server.acceptor(acceptor).serve(connections).await,
        Some(mut config) => {
            // Only HTTP/1 is supported, so only HTTP/1 is offered.
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            let tls = RustlsAcceptor::new(RustlsConfig::from_config(Arc::new(config)));
            server.acceptor(tls.acceptor(acceptor)).serve(connections).await
        }
    };
    waiting.abort();
    outcome
}

/// HTTP/1 only: its header timeout starts with the connection, and upgrades to WebSocket work.
fn configure_http(server: &mut Server<SocketAddr>) {
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(CONNECTION_BYTES);
    *server.http_builder() = builder;
}

/// The address of the client of a call, as an extension of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientAddress(pub(crate) IpAddr);

/// The router on one connection; the permit is released when the connection ends.
#[derive(Clone)]
struct Connection {
    router: Router,
    address: ClientAddress,
    _permit: Arc<OwnedSemaphorePermit>,
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

    fn call(&mut self, mut request: Request<B>) -> RouteFuture<Infallible> {
        request.extensions_mut().insert(self.address);
        self.router.call(request)
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, Bytes};
    use axum::routing::get;
    use futures::{StreamExt, stream};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    /// Responses without an end. Each holds `made_from`, whose references are counted.
    fn endless(made_from: Arc<()>) -> Router {
        let answer = move || async move {
            let pieces = stream::repeat(Bytes::from_static(&[0; 65_536]));
            Body::from_stream(pieces.map(move |piece| {
                let _held = &made_from;
                Ok::<_, Infallible>(piece)
            }))
        };
        Router::new().route("/", get(answer))
    }

    /// A response that the client does not read is dropped.
    #[tokio::test(flavor = "multi_thread")]
    async fn unread_response_is_dropped() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let held = Arc::new(());
        let (router, idle_timeout) = (endless(held.clone()), Duration::from_millis(300));
        let idle = Arc::strong_count(&held);
        let serving =
            tokio::spawn(serve_with(listener, router, None, std::future::pending(), Duration::ZERO, idle_timeout));
        // The client reads only the beginning, so that the response is on its way.
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        client.read_exact(&mut [0; 1000]).await.unwrap();
        let given_up = async {
            while Arc::strong_count(&held) > idle {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), given_up)
            .await
            .expect("the response is dropped after the idle timeout");
        // What was sent still arrives, and then the connection ends.
        let _ = client.read_to_end(&mut Vec::new()).await;
        serving.abort();
    }
}
