//! An open WebSocket: the first frame authenticates the client, every failure is reported in a frame and in the close
//! code, and every close is a handshake.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use futures::{SinkExt, StreamExt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tarn_base::fair_share::Permit;
use tarn_control::Caller;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use super::upgrade::RawSocket;
use crate::App;
use crate::http::middleware::observe::CallRecord;
use crate::http::output::failure::Failure;

/// How long a client may take to send its key.
const KEY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client may take to confirm the close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The code of a close after a frame that is too large.
const TOO_LARGE: u16 = 1009;

/// The longest reason that a close can carry.
const MAX_REASON: usize = 123;

/// Why a socket ends early.
pub(in crate::http::jobs) enum CloseReason {
    /// The client closed the connection.
    Gone,
    /// The engine refuses to continue and reports why.
    Refused(Box<Failure>),
}

/// The result of an operation on a socket, or why the socket ends.
pub(in crate::http::jobs) type SocketResult<T> = Result<T, CloseReason>;

impl From<Failure> for CloseReason {
    fn from(failure: Failure) -> Self {
        CloseReason::Refused(Box::new(failure))
    }
}

impl From<tarn_control::Error> for CloseReason {
    fn from(error: tarn_control::Error) -> Self {
        Failure::from(error).into()
    }
}

/// An open WebSocket.
pub(in crate::http::jobs) struct Socket {
    socket: RawSocket,
    record: Arc<CallRecord>,
    /// The permit until the client is authenticated.
    unauthenticated: Option<Permit<IpAddr>>,
    route: &'static str,
}

#[derive(Deserialize)]
struct KeyFrame {
    #[serde(rename = "TENSORPOOL_KEY")]
    key: String,
}

impl Socket {
    pub(in crate::http::jobs) fn new(
        socket: RawSocket,
        record: Arc<CallRecord>,
        unauthenticated: Permit<IpAddr>,
        route: &'static str,
    ) -> Self {
        Socket { socket, record, unauthenticated: Some(unauthenticated), route }
    }

    /// Authenticates the caller with the first frame and applies the rate limit.
    pub(in crate::http::jobs) async fn authenticate_caller(&mut self, app: &App) -> SocketResult<Caller> {
        let missing_key = || {
            let message = "the first frame must be {\"TENSORPOOL_KEY\": \"YOUR_TENSORPOOL_KEY\"}, within 10 s";
            Failure::new(StatusCode::UNAUTHORIZED, "unauthenticated", message)
        };
        let text = self.next_text(KEY_TIMEOUT).await?.ok_or_else(missing_key)?;
        let KeyFrame { key } = serde_json::from_str(&text).map_err(|_| missing_key())?;
        let key = key.trim();
        let caller = app.control.authenticate_from(key, self.record.address()).await?;
        let caller = self.record.identify(caller);
        app.shared.limiter.take_token(&caller.key).map_err(Failure::too_many)?;
        self.socket.get_mut().remove_limit();
        self.unauthenticated = None;
        Ok(caller)
    }

    /// Reads the next frame within the limit.
    pub(in crate::http::jobs) async fn read_frame<T: DeserializeOwned>(&mut self, limit: Duration) -> SocketResult<T> {
        let text = self.next_text(limit).await?;
        let late = || Failure::invalid("frame_missing", "the next frame did not arrive in time");
        let text = text.ok_or_else(late)?;
        // The frame is not echoed: it may hold secrets.
        let wrong = |cause: serde_json::Error| {
            let position = format!("line {}, column {}", cause.line(), cause.column());
            Failure::invalid("invalid_frame", format!("unexpected frame ({position})"))
        };
        Ok(serde_json::from_str(&text).map_err(wrong)?)
    }

    /// Returns the next text, if one arrives in time.
    async fn next_text(&mut self, limit: Duration) -> SocketResult<Option<Utf8Bytes>> {
        let until = Instant::now() + limit;
        loop {
            match timeout_at(until, self.socket.next()).await {
                Err(_) => return Ok(None),
                Ok(Some(Ok(Message::Text(text)))) => return Ok(Some(text)),
                // Pings are answered by the library.
                Ok(Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Binary(_) | Message::Frame(_)))) => {}
                Ok(Some(Err(error))) => return Err(read_failure(&error)),
                Ok(None | Some(Ok(Message::Close(_)))) => return Err(CloseReason::Gone),
            }
        }
    }

    /// Reads and ignores frames until the client closes the connection.
    pub(in crate::http::jobs) async fn wait_until_closed(&mut self) -> CloseReason {
        loop {
            match self.socket.next().await {
                Some(Err(error)) => return read_failure(&error),
                None | Some(Ok(Message::Close(_))) => return CloseReason::Gone,
                Some(Ok(_)) => {}
            }
        }
    }

    /// Sends a frame.
    pub(in crate::http::jobs) async fn send(&mut self, frame: &impl Serialize) -> SocketResult<()> {
        let text = serde_json::to_string(frame).map_err(Failure::internal)?;
        self.socket.send(Message::Text(text.into())).await.map_err(|_| CloseReason::Gone)
    }

    /// Reports the outcome to the client, the log and the metrics, and closes the socket.
    pub(in crate::http::jobs) async fn finish(mut self, ended: SocketResult<()>) {
        let code = match &ended {
            Ok(()) => 1000,
            Err(CloseReason::Refused(failure)) => close_code(failure),
            Err(CloseReason::Gone) => 1006,
        };
        self.log_close(code, &ended);
        match ended {
            Ok(()) => self.close(code, "").await,
            Err(CloseReason::Gone) => {}
            Err(CloseReason::Refused(failure)) => {
                let (message, request_id) = (failure.message.as_str(), self.record.id());
                let frame =
                    json!({ "status": "error", "message": message, "code": failure.code, "request_id": request_id });
                // A client that does not read must not keep the socket.
                if let Ok(Ok(())) = timeout(CLOSE_TIMEOUT, self.send(&frame)).await {
                    self.close(code, message).await;
                }
            }
        }
    }

    /// Sends a close frame and waits, with a timeout, for the close frame of the client.
    async fn close(&mut self, code: u16, reason: &str) {
        let reason = truncate_reason(reason).into();
        let frame = Message::Close(Some(CloseFrame { code: code.into(), reason }));
        if let Ok(Ok(())) = timeout(CLOSE_TIMEOUT, self.socket.send(frame)).await {
            let confirmed = async {
                while let Some(Ok(_)) = self.socket.next().await {}
                if code == TOO_LARGE {
                    self.drain_stream().await;
                }
            };
            let _ = timeout(CLOSE_TIMEOUT, confirmed).await;
        }
    }

    /// Reads the rest of a frame that was too large until the client closes: a client that is cut off while it sends
    /// would see a broken connection instead of the refusal.
    async fn drain_stream(&mut self) {
        let stream = self.socket.get_mut();
        let _ = stream.shutdown().await;
        let mut buffer = vec![0; 16 << 10];
        while let Ok(1..) = stream.read(&mut buffer).await {}
    }

    fn log_close(&self, code: u16, ended: &SocketResult<()>) {
        let (id, route, user) = (self.record.id(), self.route, self.record.user());
        metrics::counter!("websockets_closed_total", "route" => route, "code" => code.to_string()).increment(1);
        match ended {
            Err(CloseReason::Refused(failure)) if failure.status.is_server_error() => {
                let cause = failure.cause.as_deref().map(tracing::field::display);
                tracing::error!(
                    request_id = id,
                    route,
                    close = code,
                    user,
                    code = failure.code,
                    cause,
                    "socket failed"
                );
            }
            Err(CloseReason::Refused(failure)) => {
                tracing::info!(request_id = id, route, close = code, user, code = failure.code, "socket refused");
            }
            Ok(()) | Err(CloseReason::Gone) => {
                tracing::debug!(request_id = id, route, close = code, user, "socket closed")
            }
        }
    }
}

/// Converts an error of a read.
fn read_failure(error: &Error) -> CloseReason {
    match error {
        Error::Capacity(_) => {
            let message = "the frame is too large";
            Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "frame_too_large", message).into()
        }
        _ => CloseReason::Gone,
    }
}

/// Returns the close code of a refusal.
fn close_code(failure: &Failure) -> u16 {
    match failure.status.as_u16() {
        401 => 4401,
        402 | 409 => 4409,
        403 => 4403,
        404 => 4404,
        413 => TOO_LARGE,
        422 => 4422,
        500.. => 4500,
        _ => 4400,
    }
}

fn truncate_reason(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(MAX_REASON)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A close reason is cut between characters.
    #[test]
    fn close_reason_is_cut_between_characters() {
        assert_eq!(truncate_reason("short"), "short");
        assert_eq!(truncate_reason(&"é".repeat(100)), "é".repeat(61));
        assert_eq!(truncate_reason(&"x".repeat(200)).len(), 123);
    }
}
