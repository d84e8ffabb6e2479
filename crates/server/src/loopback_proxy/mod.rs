//! The loopback proxy: in every running instance the engine is reachable at 127.0.0.1, so that clients and credentials
//! work there unchanged.
//!
//! The engine asks each guest to listen, takes the connections and passes them to its own server, where they count for
//! their instance. So an instance has no route to the network of the host, and the protocol is the same as outside. A
//! connection gives no access by itself, and this module must not know what is sent through it. Start reading at
//! [`serve_loopback_proxies`]; `listener` keeps one listener in one instance, `permits` bounds the connections, and
//! `forward` copies the data.

mod forward;
mod listener;
mod permits;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tarn_control::Control;
use tarn_control::operations::loopback_proxy;
use tarn_model::ids::InstanceId;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::serve::InstanceConnection;
use listener::Listener;
use permits::{ConnectionPermits, SharedPermits, shared_permits};

/// How often the generation of the database is checked for changes, which is cheap.
const GENERATION_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// How often the running instances are read when changes are not visible, because other replicas write the database
/// too.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The lowest port that guests can listen on.
const FIRST_PORT: u16 = 1024;

/// How many connections may wait for the engine's own server.
const WAITING_CONNECTIONS: usize = 64;

/// A server of the engine, and its port in the instances.
#[derive(Clone, Debug)]
pub struct LoopbackProxy {
    /// The port at 127.0.0.1 in every instance.
    pub port_inside: u16,
    /// Where the engine's own server takes connections.
    engine: mpsc::Sender<InstanceConnection>,
}

impl LoopbackProxy {
    /// Returns a proxy to the server that takes the connections of the receiver and listens at `listening`: on the same
    /// port, or on `otherwise` if guests cannot listen on that port.
    pub fn to(listening: SocketAddr, otherwise: u16) -> (LoopbackProxy, mpsc::Receiver<InstanceConnection>) {
        let (engine, connections) = mpsc::channel(WAITING_CONNECTIONS);
        let port_inside = if listening.port() < FIRST_PORT { otherwise } else { listening.port() };
        (LoopbackProxy { port_inside, engine }, connections)
    }
}

/// Keeps the proxies of every running instance open, for ever.
pub async fn serve_loopback_proxies(control: Control, proxies: Vec<LoopbackProxy>) {
    if proxies.is_empty() {
        return std::future::pending().await;
    }
    let shared = shared_permits();
    let (mut tasks, mut kept) = (JoinSet::new(), HashMap::<(InstanceId, u32), AbortHandle>::new());
    let mut seen = None;
    loop {
        while tasks.try_join_next().is_some() {}
        // Read before the rows: a change between the two reads is seen in the next round.
        let generation = control.generation();
        if generation.is_none() || generation != seen {
            match loopback_proxy::running(&control).await {
                Ok(running) => {
                    seen = generation;
                    let running: HashSet<_> = running.into_iter().collect();
                    kept.retain(|start, task| running.contains(start) || abort_task(task));
                    for start in running {
                        kept.entry(start).or_insert_with_key(|(instance, _)| {
                            tasks.spawn(keep_proxies(
                                control.clone(),
                                instance.clone(),
                                proxies.clone(),
                                shared.clone(),
                            ))
                        });
                    }
                }
                Err(error) => tracing::debug!(%error, "the running instances could not be read for the loopback proxy"),
            }
        }
        tokio::time::sleep(if generation.is_some() { GENERATION_CHECK_INTERVAL } else { POLL_INTERVAL }).await;
    }
}

/// Closes the proxies of an instance with all their connections.
fn abort_task(task: &AbortHandle) -> bool {
    task.abort();
    false
}

/// Keeps all proxies of one instance.
async fn keep_proxies(control: Control, instance: InstanceId, proxies: Vec<LoopbackProxy>, shared: Arc<SharedPermits>) {
    // Only for the record, so a failed read does not matter.
    let address = loopback_proxy::address(&control, &instance).await.ok().flatten();
    let listeners = proxies.into_iter().map(|proxy| {
        let permits = ConnectionPermits::new(shared.clone(), &instance, proxy.port_inside);
        Listener { control: control.clone(), instance: instance.clone(), address, proxy, permits }.keep_listening()
    });
    futures::future::join_all(listeners).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A proxy has a port on which guests can listen.
    #[test]
    fn proxy_has_usable_port() {
        for (listening, port_inside) in [("127.0.0.1:7070", 7070), ("[::]:8000", 8000), ("192.0.2.7:443", 7070)] {
            assert_eq!(LoopbackProxy::to(listening.parse().unwrap(), 7070).0.port_inside, port_inside, "{listening}");
        }
    }
}
