//! Upgrades a call to a WebSocket. Frames may be large, but only a little is read until the client is authenticated.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tarn_base::fair_share::Permit;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::socket::Socket;
use crate::App;
use crate::http::middleware::observe::CallRecord;
use crate::http::output::failure::Failure;

/// How much is read from a client that is not authenticated. The last read may exceed it.
const UNAUTHENTICATED_BYTES: usize = 64 << 10;

/// The size of the read buffer of a socket whose frames may be large. A socket on which little is sent needs less.
const READ_BYTES: usize = 16 << 10;
const FEW_READ_BYTES: usize = 2 << 10;

/// The WebSocket stream of the library.
pub(in crate::http::jobs) type RawSocket = WebSocketStream<LimitedStream<TokioIo<Upgraded>>>;

/// A call that asks for an upgrade to a WebSocket.
pub(crate) struct Upgrade {
    record: Arc<CallRecord>,
    unauthenticated: Permit<IpAddr>,
    upgrading: OnUpgrade,
    accept: HeaderValue,
}

impl FromRequestParts<App> for Upgrade {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        let expected = || {
            let message = "this path is a WebSocket; connect with version 13 over HTTP/1.1";
            Failure::new(StatusCode::UPGRADE_REQUIRED, "websocket_expected", message)
        };
        let record = parts.extensions.get::<Arc<CallRecord>>().cloned();
        let record = record.ok_or_else(|| Failure::internal("a call without its record"))?;
        let wants_websocket = parts.method == Method::GET
            && header_has_token(&parts.headers, header::CONNECTION, "upgrade")
            && header_has_token(&parts.headers, header::UPGRADE, "websocket")
            && header_has_token(&parts.headers, header::SEC_WEBSOCKET_VERSION, "13");
        let key = parts.headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| wants_websocket).ok_or_else(expected)?;
        let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes())).map_err(Failure::internal)?;
        let upgrading = parts.extensions.remove::<OnUpgrade>().ok_or_else(expected)?;
        // Without a permit this stays an HTTP call, which the limit of connections counts.
        let unauthenticated = app.shared.sockets.acquire_unauthenticated(record.address())?;
        Ok(Upgrade { record, unauthenticated, upgrading, accept })
    }
}

impl Upgrade {
    /// Accepts the upgrade, and calls `run` with the socket when it is open. `max_frame` bounds the size of a frame.
    pub(in crate::http::jobs) fn accept_socket<F>(
        self,
        route: &'static str,
        max_frame: usize,
        run: impl FnOnce(Socket) -> F + Send + 'static,
    ) -> Response
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Upgrade { record, unauthenticated, upgrading, accept } = self;
        let config = WebSocketConfig::default()
            .max_message_size(Some(max_frame))
            .max_frame_size(Some(max_frame))
            .read_buffer_size(if max_frame > UNAUTHENTICATED_BYTES { READ_BYTES } else { FEW_READ_BYTES })
            .write_buffer_size(0);
        tokio::spawn(async move {
            // The client may disconnect before the response.
            let Ok(upgraded) = upgrading.await else { return };
            let limited = LimitedStream { stream: TokioIo::new(upgraded), left: Some(UNAUTHENTICATED_BYTES) };
            let socket = WebSocketStream::from_raw_socket(limited, Role::Server, Some(config)).await;
            run(Socket::new(socket, record, unauthenticated, route)).await;
        });
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        response
    }
}

/// Returns whether a comma-separated header contains this token.
fn header_has_token(headers: &HeaderMap, name: HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|found| found.trim().eq_ignore_ascii_case(token))
}

/// A stream of which only a limited amount is read until the limit is removed.
pub(in crate::http::jobs) struct LimitedStream<S> {
    stream: S,
    /// `None` when the limit is removed.
    left: Option<usize>,
}

impl<S> LimitedStream<S> {
    /// Removes the limit for the next read. Must be called by the task that reads, because it wakes no other task.
    pub(in crate::http::jobs) fn remove_limit(&mut self) {
        self.left = None;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LimitedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.left == Some(0) {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(ctx, buffer);
        let count = buffer.filled().len() - before;
        self.left = self.left.map(|left| left.saturating_sub(count));
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LimitedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(ctx, bytes)
    }

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

    /// Reads stop at the limit until it is removed.
    #[tokio::test]
    async fn reads_stop_at_limit() {
        let (near, mut far) = duplex(1 << 20);
        far.write_all(&[1; 100_000]).await.unwrap();
        far.shutdown().await.unwrap();
        let mut limited = LimitedStream { stream: near, left: Some(UNAUTHENTICATED_BYTES) };
        let (mut taken, mut buffer) = (0, [0; 1000]);
        while let Poll::Ready(count) = futures::poll!(Box::pin(limited.read(&mut buffer))) {
            taken += count.unwrap();
        }
        assert!((UNAUTHENTICATED_BYTES..UNAUTHENTICATED_BYTES + 1000).contains(&taken), "{taken}");
        limited.remove_limit();
        assert_eq!(limited.read_to_end(&mut Vec::new()).await.unwrap(), 100_000 - taken);
    }
}
