//! One listener in one instance: kept open, and opened again whenever it was closed.

use std::net::IpAddr;
use std::time::Duration;

use tarn_base::backoff;
use tarn_control::Control;
use tarn_control::operations::loopback_proxy;
use tarn_link::opening::{self, Opened};
use tarn_link::{Endpoint, FromGuest, Purpose, Reply, Stream};
use tarn_model::ids::InstanceId;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::permits::ConnectionPermits;
use super::{LoopbackProxy, forward};
use crate::serve::InstanceConnection;

/// How much of a connection is on its way to the engine's own server, and back.
const BUFFER_BYTES: usize = 256 << 10;

/// How long a guest, or the engine's own server, may take to reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// The delay before the listener is opened again.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// A permit is held for at least this long. That bounds how many connections per second an instance can cause, whatever
/// its guest announces.
const MIN_PERMIT_TIME: Duration = Duration::from_millis(100);

/// How many characters of a message of a guest are logged.
const MAX_LOGGED_CHARS: usize = 300;

type LinkStream = Opened<Box<dyn Stream>>;

/// One listener in one instance.
pub(super) struct Listener {
    pub(super) control: Control,
    pub(super) instance: InstanceId,
    /// The address of the instance, if it is known.
    pub(super) address: Option<IpAddr>,
    pub(super) proxy: LoopbackProxy,
    pub(super) permits: ConnectionPermits,
}

impl Listener {
    /// Keeps the guest listening until this future is dropped, which also closes all connections.
    pub(super) async fn keep_listening(self) {
        // Connections stay when the listener has to be opened again.
        let mut connections = JoinSet::new();
        let mut failures = 0_u32;
        loop {
            let (instance, port) = (&self.instance, self.proxy.port_inside);
            match self.start_listening().await {
                Ok(stream) => {
                    failures = 0;
                    tracing::debug!(%instance, port, "the loopback proxy listens in the instance");
                    self.accept_connections(stream, &mut connections).await;
                }
                // Most often a program in the instance uses the port.
                Err(why) => {
                    tracing::debug!(%instance, port, why, "the loopback proxy cannot listen in the instance; it is tried again")
                }
            }
            failures = failures.saturating_add(1);
            sleep(backoff(FIRST_DELAY, LONGEST_DELAY, failures, 0)).await;
        }
    }

    /// Asks the guest to listen; the error is for the log.
    async fn start_listening(&self) -> Result<LinkStream, String> {
        let endpoint = Endpoint::Tcp { host: "127.0.0.1".into(), port: self.proxy.port_inside };
        match open_stream(&self.control, &self.instance, Purpose::Listen(endpoint)).await? {
            (Reply::Listening(_), stream) => Ok(stream),
            _ => Err("the guest did not report where it listens".into()),
        }
    }

    /// Accepts connections until the stream ends: the guest listens for as long as it is open.
    async fn accept_connections(&self, (mut reader, _writer): LinkStream, connections: &mut JoinSet<()>) {
        while let Ok(Some(FromGuest::Incoming { id, .. })) = reader.read_message().await {
            // Without a permit no connection is taken: it waits in the instance.
            let permit = self.permits.acquire_permit().await;
            while connections.try_join_next().is_some() {}
            let (control, engine) = (self.control.clone(), self.proxy.engine.clone());
            let (near, far) = tokio::io::duplex(BUFFER_BYTES);
            let incoming = InstanceConnection { stream: far, instance: self.instance.clone(), address: self.address };
            connections.spawn(async move {
                let connection = async {
                    let instance = incoming.instance.clone();
                    if let Err(why) = take_connection(&control, id, near, incoming, &engine).await {
                        tracing::debug!(%instance, why, "a connection from an instance was not forwarded");
                    }
                };
                tokio::join!(connection, sleep(MIN_PERMIT_TIME));
                drop(permit);
            });
        }
    }
}

/// Takes an announced connection and passes it to the engine's own server; the error is for the log.
async fn take_connection(
    control: &Control,
    id: u64,
    near: DuplexStream,
    incoming: InstanceConnection,
    engine: &mpsc::Sender<InstanceConnection>,
) -> Result<(), String> {
    let (_, stream) = open_stream(control, &incoming.instance, Purpose::Take { id }).await?;
    let taken = timeout(REPLY_TIMEOUT, engine.send(incoming)).await.map_err(|_| "the engine does not reply")?;
    taken.map_err(|_| "the engine stops")?;
    metrics::counter!("tarn_inside_connections_total").increment(1);
    forward::forward_connection(stream, near, forward::TIMEOUTS).await;
    Ok(())
}

async fn open_stream(
    control: &Control,
    instance: &InstanceId,
    purpose: Purpose,
) -> Result<(Reply, LinkStream), String> {
    let asked = async {
        let stream = loopback_proxy::dial(control, instance).await?;
        opening::open(stream, purpose)
            .await
            .map_err(|e| tarn_base::plain(&e.to_string(), MAX_LOGGED_CHARS).into_owned())
    };
    timeout(REPLY_TIMEOUT, asked).await.unwrap_or_else(|_| Err("the guest does not reply".into()))
}
