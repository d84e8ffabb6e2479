//! WebSocket /job/listen/{job_id}: the log of a job from its first byte on, and its outcome.

mod line_buffer;
mod unread;

use std::pin::pin;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use serde_json::json;
use tarn_control::Caller;
use tarn_control::jobs::logs::{self, Followed};
use tokio::time::{Instant, sleep_until};

use self::line_buffer::LineBuffer;
use self::unread::Room;
pub(in crate::http::jobs) use self::unread::UnreadBytes;
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
    let (unread, owner) = (&app.shared.sockets.unread, caller.user.owner());
    let mut lines = LineBuffer::default();
    let mut flushed = Instant::now();
    let mut room: Option<Room> = None;
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
                        // Without room the line stays as it is for another while.
                        if let Some(_room) = unread.try_acquire(&owner, lines.sending_bytes(&[])) {
                            send_blocks(socket, lines.flush()).await?;
                            flushed = Instant::now();
                        }
                        due = Instant::now() + SILENCE_BEFORE_FLUSH;
                    }
                }
            }
        };
        match followed {
            Followed::Data(data) => {
                let wanted = lines.sending_bytes(&data);
                let reserved = room.take().filter(|room| room.bytes() >= wanted);
                let Some(_room) = reserved.or_else(|| unread.try_acquire(&owner, wanted)) else {
                    follower.return_again(&data);
                    drop(data);
                    room = Some(wait_for_room(socket, unread.acquire(&owner, wanted)).await?);
                    continue;
                };
                let held = lines.has_partial_line();
                let blocks = lines.push(&data);
                // It may be a part of a larger block of memory.
                drop(data);
                send_blocks(socket, blocks).await?;
                if !held || !lines.has_partial_line() {
                    flushed = Instant::now();
                }
            }
            Followed::Ended(ended) => {
                let _room = wait_for_room(socket, unread.acquire(&owner, lines.sending_bytes(&[]))).await?;
                send_blocks(socket, lines.end()).await?;
                let (status, message) = view::closing_message(&ended);
                return socket.send(&json!({ "status": status, "message": message })).await;
            }
        }
    }
}

/// Waits until there is room, or the client has closed the connection.
async fn wait_for_room(socket: &mut Socket, room: impl Future<Output = Room>) -> SocketResult<Room> {
    tokio::select! {
        room = room => Ok(room),
        gone = socket.wait_until_closed() => Err(gone),
    }
}

async fn send_blocks(socket: &mut Socket, blocks: Vec<String>) -> SocketResult<()> {
    for block in blocks {
        socket.send(&json!({ "message": block })).await?;
    }
    Ok(())
}
