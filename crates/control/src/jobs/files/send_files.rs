//! Sending the files of a job to a node.

use std::time::Duration;

use futures::StreamExt;
use tarn_link::{Frame, FromJob};
use tarn_model::ids::JobId;
use tokio::sync::watch;

use super::job_files;
use crate::jobs::attempt::guest_calls::GuestLink;
use crate::jobs::attempt::node_follower::AttemptSignal;
use crate::{Control, Kind};

/// How long a node may take to accept one piece, and to report what is wrong with the files.
const PIECE_TIMEOUT: Duration = Duration::from_secs(60);

/// The result of sending.
pub(in crate::jobs) enum Sent {
    All,
    /// The job has to stop. A node starts nothing before it has received all files.
    Stopped,
    /// The node refused the files.
    Refused {
        reason: String,
        may_work_later: bool,
    },
    /// The node violated the protocol.
    Fault(String),
}

/// Sends the files. A node that cannot accept them reports that while they are sent; an error means that the stream
/// broke.
pub(in crate::jobs) async fn send_files(
    control: &Control,
    job: &JobId,
    (reader, writer): &mut GuestLink,
    signal: &mut watch::Receiver<AttemptSignal>,
) -> std::result::Result<Sent, String> {
    let mut files = match job_files::read_files(control, job).await {
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
            if signal.borrow().stop {
                return Ok(Sent::Stopped);
            }
            send_within_timeout(writer.data(&piece)).await?;
        }
        send_within_timeout(writer.eof()).await.map(|()| Sent::All)
    };
    let broken = tokio::select! {
        biased;
        sent = sending => match sent {
            Ok(sent) => return Ok(sent),
            Err(why) => why,
        },
        frame = reader.read() => return parse_refusal(frame),
    };
    // A node that refuses the rest reports that before it closes the stream.
    match tokio::time::timeout(PIECE_TIMEOUT, reader.read()).await {
        Ok(frame) => parse_refusal(frame).map_err(|_| broken),
        Err(_) => Err(broken),
    }
}

async fn send_within_timeout(sent: impl Future<Output = tarn_link::Result<()>>) -> std::result::Result<(), String> {
    match tokio::time::timeout(PIECE_TIMEOUT, sent).await {
        Ok(sent) => sent.map_err(|error| error.to_string()),
        Err(_) => Err("the node did not accept the files".to_owned()),
    }
}

fn parse_refusal(frame: tarn_link::Result<Option<Frame>>) -> std::result::Result<Sent, String> {
    match frame {
        Ok(Some(Frame::Message(message))) => match Frame::parse(&message) {
            Ok(FromJob::NotStarted { reason, may_work_later }) => Ok(Sent::Refused { reason, may_work_later }),
            Ok(other) => Ok(Sent::Fault(format!("the node sent {other:?} before it had the files"))),
            Err(error) => Ok(Sent::Fault(error.to_string())),
        },
        Ok(Some(_)) => Ok(Sent::Fault("the node did not wait for the files".to_owned())),
        Ok(None) => Err("the node closed the stream before it had the files".to_owned()),
        Err(error @ tarn_link::Error::Protocol(_)) => Ok(Sent::Fault(error.to_string())),
        Err(error) => Err(error.to_string()),
    }
}
