//! WebSocket /job/listen/{job_id}: the log of a job from its first byte on, and its outcome.

mod line_buffer;

use std::pin::pin;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use serde_json::json;
use tarn_control::Caller;
use tarn_control::jobs::logs::{self, Followed};
use tokio::time::{Instant, sleep_until};

use self::line_buffer::LineBuffer;
use super::view;
use super::websocket::socket::{Socket, SocketResult};
use super::websocket::upgrade::Upgrade;
use crate::App;
use crate::http::input::id::Id;

/// A listener sends only its key.
const MAX_FRAME_BYTES: usize = 64 << 10;

/// After this long without output an incomplete line is sent.
const SILENCE_BEFORE_FLUSH: Duration = Duration::from_secs(1);

/// How often a line that keeps changing, such as a progress bar, is sent.
const MAX_FLUSH_INTERVAL: Duration = Duration::from_secs(10);

/// Accepts a listener; it is authenticated after the upgrade.
pub(crate) async fn listen_to_job(State(app): State<App>, Id(job): Id, upgrade: Upgrade) -> Response {
    upgrade.accept_socket("/job/listen/{job_id}", MAX_FRAME_BYTES, async move |mut socket| {
        let ended = listen(&app, &mut socket, &job).await;
        socket.finish(ended).await;
    })
}

/// Authenticates the client, and streams the log for as long as the client has access.
async fn listen(app: &App, socket: &mut Socket, job: &str) -> SocketResult<()> {
    let caller = socket.authenticate_caller(app).await?;
    let _permit = app.shared.sockets.listeners.acquire(&caller.user.owner())?;
    let held = app.control.hold_access(&caller);
    held.run(stream_log(app, socket, &caller, job)).await?
}

async fn stream_log(app: &App, socket: &mut Socket, caller: &Caller, job: &str) -> SocketResult<()> {
    let mut follower = logs::follow(&app.control, caller, job).await?;
    let mut lines = LineBuffer::default();
    let mut flushed = Instant::now();
    loop {
        let mut due = (Instant::now() + SILENCE_BEFORE_FLUSH).min(flushed + MAX_FLUSH_INTERVAL);
        let followed = {
            // The same future is polled again after other events, so that no output is lost.
            let mut next = pin!(follower.next());
            loop {
                tokio::select! {
                    followed = &mut next => break followed?,
                    gone = socket.wait_until_closed() => return Err(gone),
                    () = sleep_until(due), if lines.has_partial_line() => {
                        send_blocks(socket, lines.flush()).await?;
                        flushed = Instant::now();
                        due = flushed + SILENCE_BEFORE_FLUSH;
                    }
                }
            }
        };
        match followed {
            Followed::Data(data) => {
                let held = lines.has_partial_line();
                send_blocks(socket, lines.push(&data)).await?;
                if !held || !lines.has_partial_line() {
                    flushed = Instant::now();
                }
            }
            Followed::Ended(ended) => {
                send_blocks(socket, lines.end()).await?;
                let (status, message) = view::closing_message(&ended);
                return socket.send(&json!({ "status": status, "message": message })).await;
            }
        }
    }
}

async fn send_blocks(socket: &mut Socket, blocks: Vec<String>) -> SocketResult<()> {
    for block in blocks {
        socket.send(&json!({ "message": block })).await?;
    }
    Ok(())
}
