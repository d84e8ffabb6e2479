//! Doors: inside of every running instance the engine answers at 127.0.0.1, so that the tools and credentials of the outside
//! work there unchanged.
//!
//! The engine asks each guest to listen, takes over who comes there, and carries him to its own listener. So no way leads from
//! an instance to the network of the host, and the protocol inside is the one outside. A door gives no right by itself, and
//! this must not know what is said through it. Start reading at [`serve_loopback_proxies`]; `listener` keeps one door of one instance,
//! `permits` says how many may come, and `carry` how long one may stay.

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
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};

use listener::Listener;
use permits::ConnectionPermits;

/// How often it is asked whether anything has changed, which costs nothing.
const GENERATION_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// How often the running instances are read where changes go unseen, because others write the database too.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The guests give out no ports below.
const FIRST_PORT: u16 = 1024;

/// A listener of the engine, and where it is found inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopbackProxy {
    /// The port at 127.0.0.1 in every instance.
    pub port_inside: u16,
    /// Where the engine itself listens.
    pub address: SocketAddr,
}

impl LoopbackProxy {
    /// A door to what listens at `listening`, on the same port; on `otherwise` where that is one that guests do not give out.
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

/// Keeps the doors of every running instance open, for ever.
pub async fn serve_loopback_proxies(control: Control, proxies: Vec<LoopbackProxy>) {
    if proxies.is_empty() {
        return std::future::pending().await;
    }
    let shared = Arc::new(Semaphore::new(permits::SHARED));
    let (mut tasks, mut kept) = (JoinSet::new(), HashMap::<(InstanceId, u32), AbortHandle>::new());
    let mut seen = None;
    loop {
        while tasks.try_join_next().is_some() {}
        // Read before the rows are: a change that comes between the two is looked at again.
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
                Err(error) => tracing::debug!(%error, "the running instances could not be read for their doors"),
            }
        }
        tokio::time::sleep(if generation.is_some() { GENERATION_CHECK_INTERVAL } else { POLL_INTERVAL }).await;
    }
}

/// Ends the doors of an instance and all who are in them.
fn abort_task(task: &AbortHandle) -> bool {
    task.abort();
    false
}

/// Keeps all doors of one instance.
async fn keep_proxies(control: Control, instance: InstanceId, proxies: Vec<LoopbackProxy>, shared: Arc<Semaphore>) {
    let listeners = proxies.into_iter().map(|proxy| {
        let permits = ConnectionPermits::new(shared.clone());
        Listener { control: control.clone(), instance: instance.clone(), proxy, permits }.keep_listening()
    });
    futures::future::join_all(listeners).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_leads_to_where_the_engine_can_be_reached() {
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
