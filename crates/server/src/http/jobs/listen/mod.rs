//! WebSocket /job/listen/{job_id}: the output of a job from its first byte on, and how it ended.

mod lines;

use std::pin::pin;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use serde_json::json;
use tarn_control::jobs::logs::{self, Followed};
use tokio::time::{Instant, sleep_until};

use self::lines::Lines;
use super::socket::{Socket, Talk};
use super::upgrade::Upgrade;
use super::view;
use crate::App;
use crate::http::id::Id;

/// A listener has nothing to say but its key.
const MAX_FRAME: usize = 64 << 10;

/// After so long a silence a line is shown although its end has not come.
const SILENCE: Duration = Duration::from_secs(1);

/// A line that changes all the time, as progress bars do, is shown so often.
const STANDING: Duration = Duration::from_secs(10);

/// So often it is asked whether the key of a listener is still good.
const LOOK: Duration = Duration::from_secs(60);

/// Accepts whoever wants to listen; who it is comes after that.
pub(crate) async fn listen(State(app): State<App>, Id(job): Id, upgrade: Upgrade) -> Response {
    upgrade.open("/job/listen/{job_id}", MAX_FRAME, async move |mut socket| {
        let ended = talk(&app, &mut socket, &job).await;
        socket.end(ended).await;
    })
}

async fn talk(app: &App, socket: &mut Socket, job: &str) -> Talk<()> {
    let caller = socket.caller(app).await?;
    let _place = app.shared.sockets.listeners.take(&caller.user.id)?;
    let mut follower = logs::follow(&app.control, &caller, job).await?;
    let mut lines = Lines::default();
    let mut standing = Instant::now();
    let mut looked = Instant::now();
    loop {
        let mut due = (Instant::now() + SILENCE).min(standing + STANDING);
        let followed = {
            // The same wait goes on whatever else happens, so that nothing of it is lost.
            let mut next = pin!(follower.next());
            loop {
                tokio::select! {
                    followed = &mut next => break followed?,
                    gone = socket.gone() => return Err(gone),
                    () = sleep_until(looked + LOOK) => {
                        socket.still_known(app).await?;
                        looked = Instant::now();
                    }
                    () = sleep_until(due), if lines.holds() => {
                        show(socket, lines.flush()).await?;
                        standing = Instant::now();
                        due = standing + SILENCE;
                    }
                }
            }
        };
        match followed {
            Followed::Data(data) => {
                let held = lines.holds();
                show(socket, lines.push(&data)).await?;
                if !held || !lines.holds() {
                    standing = Instant::now();
                }
            }
            Followed::Ended(ended) => {
                show(socket, lines.end()).await?;
                let (status, message) = view::closing(&ended);
                return socket.send(&json!({ "status": status, "message": message })).await;
            }
        }
    }
}

async fn show(socket: &mut Socket, blocks: Vec<String>) -> Talk<()> {
    for block in blocks {
        socket.send(&json!({ "message": block })).await?;
    }
    Ok(())
}
