//! What is the same for both WebSockets: who calls is said in the first frame, whatever goes wrong is told in a frame and in
//! the code of the close, and every close is a handshake.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use futures::{SinkExt, StreamExt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tarn_control::{Caller, Kind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use super::upgrade::Raw;
use crate::App;
use crate::http::failure::Failure;
use crate::http::observe::Seen;

/// How long a client may take to say who it is.
const KEY_PATIENCE: Duration = Duration::from_secs(10);

/// How long a client may take to agree that it is over.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// The code of a close after a frame that is too large.
const TOO_LARGE: u16 = 1009;

/// The longest reason that a close can carry.
const MAX_REASON: usize = 123;

/// Why a talk is over before its time.
pub(super) enum Ending {
    /// The client has gone.
    Gone,
    /// It is told why.
    Refused(Box<Failure>),
}

/// What comes of a talk, or why it is over.
pub(super) type Talk<T> = Result<T, Ending>;

impl From<Failure> for Ending {
    fn from(failure: Failure) -> Self {
        Ending::Refused(Box::new(failure))
    }
}

impl From<tarn_control::Error> for Ending {
    fn from(error: tarn_control::Error) -> Self {
        Failure::from(error).into()
    }
}

/// An open WebSocket.
pub(super) struct Socket {
    socket: Raw,
    seen: Arc<Seen>,
    /// The place of somebody of whom nothing is known.
    stranger: Option<OwnedSemaphorePermit>,
    /// What the client said to be its key, once that is known to be one.
    key: String,
    route: &'static str,
}

#[derive(Deserialize)]
struct KeyFrame {
    #[serde(rename = "TENSORPOOL_KEY")]
    key: String,
}

impl Socket {
    pub(super) fn new(socket: Raw, seen: Arc<Seen>, stranger: OwnedSemaphorePermit, route: &'static str) -> Self {
        Socket { socket, seen, stranger: Some(stranger), key: String::new(), route }
    }

    /// Who calls, as the first frame says, and whether he may call now.
    pub(super) async fn caller(&mut self, app: &App) -> Talk<Caller> {
        let nobody = || {
            let message = "the first frame has to be {\"TENSORPOOL_KEY\": \"YOUR_TENSORPOOL_KEY\"}, within 10 s";
            Failure::new(StatusCode::UNAUTHORIZED, "unauthenticated", message)
        };
        let text = self.text(KEY_PATIENCE).await?.ok_or_else(nobody)?;
        let KeyFrame { key } = serde_json::from_str(&text).map_err(|_| nobody())?;
        let key = key.trim();
        let caller = app.control.authenticate(key).await?;
        self.seen.called_by(&caller.user.id);
        app.shared.limiter.check(&caller.key).map_err(Failure::too_many)?;
        self.socket.get_mut().open();
        self.stranger = None;
        key.clone_into(&mut self.key);
        Ok(caller)
    }

    /// Refuses somebody whose key is not good any more. A database that cannot say so now is no reason.
    pub(super) async fn still_known(&mut self, app: &App) -> Talk<()> {
        match app.control.authenticate(&self.key).await {
            Err(error) if error.kind == Kind::Unauthenticated => Err(error.into()),
            Err(error) => {
                tracing::warn!(request_id = self.seen.id(), %error, "a key could not be looked at again");
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    /// What the next frame says. The client has so long for it.
    pub(super) async fn read<T: DeserializeOwned>(&mut self, patience: Duration) -> Talk<T> {
        let text = self.text(patience).await?;
        let late = || Failure::invalid("frame_missing", "the next frame did not come in time");
        let text = text.ok_or_else(late)?;
        // What was sent is not repeated: it may hold secrets.
        let wrong = |cause: serde_json::Error| {
            let place = format!("line {}, column {}", cause.line(), cause.column());
            Failure::invalid("invalid_frame", format!("a frame is not what is expected here ({place})"))
        };
        Ok(serde_json::from_str(&text).map_err(wrong)?)
    }

    /// The next text, if one comes in time.
    async fn text(&mut self, patience: Duration) -> Talk<Option<Utf8Bytes>> {
        let until = Instant::now() + patience;
        loop {
            match timeout_at(until, self.socket.next()).await {
                Err(_) => return Ok(None),
                Ok(Some(Ok(Message::Text(text)))) => return Ok(Some(text)),
                // Pings are answered by the library.
                Ok(Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Binary(_) | Message::Frame(_)))) => {}
                Ok(Some(Err(error))) => return Err(broken(&error)),
                Ok(None | Some(Ok(Message::Close(_)))) => return Err(Ending::Gone),
            }
        }
    }

    /// Reads until the client goes. What it says meanwhile counts for nothing.
    pub(super) async fn gone(&mut self) -> Ending {
        loop {
            match self.socket.next().await {
                Some(Err(error)) => return broken(&error),
                None | Some(Ok(Message::Close(_))) => return Ending::Gone,
                Some(Ok(_)) => {}
            }
        }
    }

    /// Sends a frame.
    pub(super) async fn send(&mut self, frame: &impl Serialize) -> Talk<()> {
        let text = serde_json::to_string(frame).map_err(Failure::internal)?;
        self.socket.send(Message::Text(text.into())).await.map_err(|_| Ending::Gone)
    }

    /// Tells the client how it ended, and the log and the metrics.
    pub(super) async fn end(mut self, ended: Talk<()>) {
        let code = match &ended {
            Ok(()) => 1000,
            Err(Ending::Refused(failure)) => code_of(failure),
            Err(Ending::Gone) => 1006,
        };
        self.log(code, &ended);
        match ended {
            Ok(()) => self.close(code, "").await,
            Err(Ending::Gone) => {}
            Err(Ending::Refused(failure)) => {
                let (message, request_id) = (failure.message.as_str(), self.seen.id());
                let frame =
                    json!({ "status": "error", "message": message, "code": failure.code, "request_id": request_id });
                if self.send(&frame).await.is_ok() {
                    self.close(code, message).await;
                }
            }
        }
    }

    /// Says that it is over and waits, but not for ever, until the client has said so too.
    async fn close(&mut self, code: u16, reason: &str) {
        let reason = shortened(reason).into();
        if self.socket.send(Message::Close(Some(CloseFrame { code: code.into(), reason }))).await.is_ok() {
            let agreed = async {
                while let Some(Ok(_)) = self.socket.next().await {}
                if code == TOO_LARGE {
                    self.drain().await;
                }
            };
            let _ = timeout(CLOSE_PATIENCE, agreed).await;
        }
    }

    /// Reads on, past what the library gave up, until the client closes: one that is cut off while it sends would see a broken
    /// connection instead of what was told.
    async fn drain(&mut self) {
        let stream = self.socket.get_mut();
        let _ = stream.shutdown().await;
        let mut buffer = vec![0; 16 << 10];
        while let Ok(1..) = stream.read(&mut buffer).await {}
    }

    fn log(&self, code: u16, ended: &Talk<()>) {
        let (id, route, user) = (self.seen.id(), self.route, self.seen.user());
        metrics::counter!("websockets_closed_total", "route" => route, "code" => code.to_string()).increment(1);
        match ended {
            Err(Ending::Refused(failure)) if failure.status.is_server_error() => {
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
            Err(Ending::Refused(failure)) => {
                tracing::info!(request_id = id, route, close = code, user, code = failure.code, "socket refused");
            }
            Ok(()) | Err(Ending::Gone) => tracing::debug!(request_id = id, route, close = code, user, "socket closed"),
        }
    }
}

/// Why nothing more can be read.
fn broken(error: &Error) -> Ending {
    match error {
        Error::Capacity(_) => {
            let message = "a frame is larger than what is taken here";
            Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "frame_too_large", message).into()
        }
        _ => Ending::Gone,
    }
}

/// The code of a close after a refusal.
fn code_of(failure: &Failure) -> u16 {
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

fn shortened(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(MAX_REASON)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"é".repeat(100)), "é".repeat(61));
        assert_eq!(shortened(&"x".repeat(200)).len(), 123);
    }
}
