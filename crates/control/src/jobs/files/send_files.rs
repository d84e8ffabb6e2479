//! The files of a job on their way to a node.

use std::time::Duration;

use futures::StreamExt;
use tarn_link::{Frame, FromJob};
use tarn_model::ids::JobId;
use tokio::sync::watch;

use super::guests::Link;
use super::node::Told;
use super::shelf;
use crate::{Control, Kind};

/// How long a node may take for one piece, and to say what was wrong with them.
const PATIENCE: Duration = Duration::from_secs(60);

/// What came of it.
pub(super) enum Sent {
    /// All of them are there.
    All,
    /// The job is not wanted any more. Without the end of its files a node starts nothing.
    Stopped,
    /// The node does not take them.
    Refused { reason: String, may_work_later: bool },
    /// What it said makes no sense.
    Fault(String),
}

/// Sends them. A node that cannot take them says so while they come; an error is a stream that broke.
pub(super) async fn send(
    control: &Control,
    job: &JobId,
    (reader, writer): &mut Link,
    told: &mut watch::Receiver<Told>,
) -> std::result::Result<Sent, String> {
    let mut files = match shelf::read_files(control, job).await {
        Ok((_, files)) => files,
        Err(error) if error.kind == Kind::Unavailable => return Err(error.message),
        Err(error) => {
            tracing::error!(%job, cause = ?error.cause, "the files of a job cannot be read: {error}");
            let reason = "the engine has lost its files; push it again".to_owned();
            return Ok(Sent::Refused { reason, may_work_later: false });
        }
    };
    let sending = async {
        while let Some(piece) = files.next().await {
            let piece = piece.map_err(|error| error.to_string())?;
            if told.borrow().stop {
                return Ok(Sent::Stopped);
            }
            in_time(writer.data(&piece)).await?;
        }
        in_time(writer.eof()).await.map(|()| Sent::All)
    };
    let broken = tokio::select! {
        biased;
        sent = sending => match sent {
            Ok(sent) => return Ok(sent),
            Err(why) => why,
        },
        frame = reader.read() => return refusal(frame),
    };
    // Who does not want the rest has said so before he hung up.
    match tokio::time::timeout(PATIENCE, reader.read()).await {
        Ok(frame) => refusal(frame).map_err(|_| broken),
        Err(_) => Err(broken),
    }
}

async fn in_time(sent: impl Future<Output = tarn_link::Result<()>>) -> std::result::Result<(), String> {
    match tokio::time::timeout(PATIENCE, sent).await {
        Ok(sent) => sent.map_err(|error| error.to_string()),
        Err(_) => Err("it did not take the files".to_owned()),
    }
}

fn refusal(frame: tarn_link::Result<Option<Frame>>) -> std::result::Result<Sent, String> {
    match frame {
        Ok(Some(Frame::Message(message))) => match Frame::parse(&message) {
            Ok(FromJob::NotStarted { reason, may_work_later }) => Ok(Sent::Refused { reason, may_work_later }),
            Ok(other) => Ok(Sent::Fault(format!("it said {other:?} before it had its files"))),
            Err(error) => Ok(Sent::Fault(error.to_string())),
        },
        Ok(Some(_)) => Ok(Sent::Fault("it did not wait for its files".to_owned())),
        Ok(None) => Err("it hung up before it had its files".to_owned()),
        Err(error @ tarn_link::Error::Protocol(_)) => Ok(Sent::Fault(error.to_string())),
        Err(error) => Err(error.to_string()),
    }
}
