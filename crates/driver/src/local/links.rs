//! Talking to the guest of an instance.

use std::io;
use std::time::Duration;

use tarn_link::{Purpose, opening};
use tarn_model::ids::InstanceId;
use tokio::net::UnixStream;

use super::local_host::LocalHost;
use crate::{Access, Error};

/// How long a guest may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// As much of a guest's words as is passed on.
const MAX_WORDS: usize = 300;

/// A new stream to the guest. It listens from before its instance begins until the end.
pub(super) async fn connect(host: &LocalHost, id: &InstanceId) -> Result<UnixStream, Error> {
    if host.record(id).is_none() {
        return Err(Error::Permanent(format!("there is no instance {id}")));
    }
    match UnixStream::connect(host.places.control(id)).await {
        Ok(stream) => Ok(stream),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            Err(Error::Retry("the instance does not run".into()))
        }
        Err(error) => {
            tracing::warn!(%id, %error, "the guest cannot be reached");
            Err(Error::Retry("the instance cannot be reached".into()))
        }
    }
}

/// Gives the guest its keys and names.
pub(super) async fn configure(host: &LocalHost, id: &InstanceId, access: &Access) -> Result<(), Error> {
    say(host, id, Purpose::Configure(Box::new(access.clone())), PATIENCE).await
}

/// Says one thing to the guest and waits for its answer.
pub(super) async fn say(host: &LocalHost, id: &InstanceId, purpose: Purpose, patience: Duration) -> Result<(), Error> {
    let talk = async {
        let stream = connect(host, id).await?;
        match opening::open(stream, purpose).await {
            Ok(_) => Ok(()),
            Err(tarn_link::Error::Refused(reason)) => {
                Err(Error::Permanent(format!("the instance refused: {}", plain(&reason))))
            }
            Err(error) => Err(Error::Retry(format!("the instance did not answer: {}", plain(&error.to_string())))),
        }
    };
    tokio::time::timeout(patience, talk)
        .await
        .unwrap_or_else(|_| Err(Error::Retry("the instance does not answer".into())))
}

/// A guest may say anything: only so much, and nothing that could play with a terminal or a log.
fn plain(words: &str) -> String {
    words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_WORDS).collect()
}
