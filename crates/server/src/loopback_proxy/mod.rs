//! The loopback proxy: in every running instance the engine is reachable at 127.0.0.1, so that clients and credentials
//! work there unchanged.
//!
//! The engine asks each guest to listen, takes the connections and forwards them to its own listener. So an instance
//! has no route to the network of the host, and the protocol is the same as outside. A connection gives no access by
//! itself, and this module must not know what is sent through it. Start reading at [`serve_loopback_proxies`];
//! `listener` keeps one listener in one instance, `permits` bounds the connections, and `forward` copies the data.

mod forward;
mod listener;
mod permits;

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tarn_control::Control;
use tarn_control::operations::loopback_proxy;
use tarn_model::ids::InstanceId;
use tokio::task::{AbortHandle, JoinSet};

use listener::Listener;
use permits::{ConnectionPermits, SharedPermits, shared_permits};

/// How often the generation of the database is checked for changes, which is cheap.
const GENERATION_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// How often the running instances are read when changes are not visible, because other replicas write the database
/// too.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The lowest port that guests can listen on.
const FIRST_PORT: u16 = 1024;

/// A listener of the engine, and its port in the instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopbackProxy {
    /// The port at 127.0.0.1 in every instance.
    pub port_inside: u16,
    /// Where the engine itself listens.
    pub address: SocketAddr,
}

impl LoopbackProxy {
    /// Returns a proxy to the listener at `listening`, on the same port, or on `otherwise` if guests cannot listen on
    /// that port.
    pub fn to(listening: SocketAddr, otherwise: u16) -> LoopbackProxy {
        let mut address = listening;
        match listening {
            SocketAddr::V4(all) if all.ip().is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            SocketAddr::V6(all) if all.ip().is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            SocketAddr::V4(_) | SocketAddr::V6(_) => {}
        }
        let port_inside = if listening.port() < FIRST_PORT { otherwise } else { listening.port() };
        LoopbackProxy { port_inside, address }
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
    let listeners = proxies.into_iter().map(|proxy| {
        let permits = ConnectionPermits::new(shared.clone(), &instance, proxy.port_inside);
        Listener { control: control.clone(), instance: instance.clone(), proxy, permits }.keep_listening()
    });
    futures::future::join_all(listeners).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A proxy leads to an address where the engine can be reached.
    #[test]
    fn proxy_leads_to_reachable_address() {
        for (listening, port_inside, address) in [
            ("127.0.0.1:7070", 7070, "127.0.0.1:7070"),
            ("0.0.0.0:8000", 8000, "127.0.0.1:8000"),
            ("[::]:8000", 8000, "[::1]:8000"),
            ("192.0.2.7:443", 7070, "192.0.2.7:443"),
        ] {
            let proxy = LoopbackProxy { port_inside, address: address.parse().unwrap() };
            assert_eq!(LoopbackProxy::to(listening.parse().unwrap(), 7070), proxy, "{listening}");
        }
    }
}
