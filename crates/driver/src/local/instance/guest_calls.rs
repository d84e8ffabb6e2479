//! Calls to the guest of an instance.

use std::io;
use std::time::Duration;

use tarn_base::plain;
use tarn_link::{Purpose, opening};
use tarn_model::ids::InstanceId;
use tokio::net::UnixStream;

use crate::local::local_host::LocalHost;
use crate::{Access, Error};

/// How long a guest may take to reply.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How much of a guest's message is passed on.
const MAX_MESSAGE_CHARS: usize = 300;

/// Opens a new stream to the guest. The guest listens from before its instance starts until the end.
pub(in crate::local) async fn connect_to_guest(host: &LocalHost, id: &InstanceId) -> Result<UnixStream, Error> {
    if host.record(id).is_none() {
        return Err(Error::Permanent(format!("there is no instance {id}")));
    }
    match UnixStream::connect(host.paths.control_socket(id)).await {
        Ok(stream) => Ok(stream),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            Err(Error::Retry("the instance is not running".into()))
        }
        Err(error) => {
            tracing::warn!(%id, %error, "the guest cannot be reached");
            Err(Error::Retry("the instance cannot be reached".into()))
        }
    }
}

/// Sends the guest its keys and names.
pub(in crate::local) async fn configure_guest(host: &LocalHost, id: &InstanceId, access: &Access) -> Result<(), Error> {
    call_guest(host, id, Purpose::Configure(Box::new(access.clone())), TIMEOUT).await
}

/// Sends one message to the guest and waits for its reply.
pub(in crate::local) async fn call_guest(
    host: &LocalHost,
    id: &InstanceId,
    purpose: Purpose,
    timeout: Duration,
) -> Result<(), Error> {
    let call = async {
        let stream = connect_to_guest(host, id).await?;
        match opening::open(stream, purpose).await {
            Ok(_) => Ok(()),
            Err(tarn_link::Error::Refused(reason)) => {
                Err(Error::Permanent(format!("the instance refused: {}", plain(&reason, MAX_MESSAGE_CHARS))))
            }
            Err(error) => {
                let error = plain(&error.to_string(), MAX_MESSAGE_CHARS).into_owned();
                Err(Error::Retry(format!("the instance did not reply: {error}")))
            }
        }
    };
    tokio::time::timeout(timeout, call)
        .await
        .unwrap_or_else(|_| Err(Error::Retry("the instance does not reply".into())))
}
