//! Accepts connections until it is told to stop.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use russh::Disconnect;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::gate::{Gate, Ticket};
use crate::visitor::{Place, Visitor};
use crate::wire::{Cutter, Wire};
use crate::{Authorizer, Settings};

/// How long a connection has to say goodbye when the server stops.
const GOODBYE: Duration = Duration::from_secs(1);

/// Serves SSH on a listener until `stop` is done, then ends all connections. New settings are for new connections.
pub async fn serve(
    listener: TcpListener,
    settings: watch::Receiver<Arc<Settings>>,
    authorizer: Arc<dyn Authorizer>,
    stop: impl Future<Output = ()>,
) {
    let gate = Arc::new(Gate::default());
    let (stopping, _) = watch::channel(false);
    let mut connections = JoinSet::new();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => {
                    let settings = settings.borrow().clone();
                    // Whoever comes too often, or finds the house full, is not even greeted.
                    if let Some(ticket) = gate.admit(from.ip(), &settings.limits, Instant::now()) {
                        let connection = Connection { settings, authorizer: authorizer.clone(), ticket, stopping: stopping.subscribe() };
                        connections.spawn(connection.run(stream, from));
                    }
                }
                Err(error) => {
                    // Out of descriptors, most likely: those who are here will give some back.
                    tracing::warn!(%error, "no SSH connection could be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    stopping.send_replace(true);
    while connections.join_next().await.is_some() {}
}

struct Connection {
    settings: Arc<Settings>,
    authorizer: Arc<dyn Authorizer>,
    ticket: Ticket,
    stopping: watch::Receiver<bool>,
}

impl Connection {
    async fn run(mut self, stream: TcpStream, from: SocketAddr) {
        let Ok(to) = stream.local_addr() else { return };
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let (entered, mut has_entered) = watch::channel(false);
        let cutter = Arc::new(Cutter::default());
        let wire = Wire::new(stream, cutter.clone());
        let place = Place { settings: self.settings.clone(), authorizer: self.authorizer, from, to };
        let visitor = Visitor::new(place, self.ticket, entered);
        let grace = tokio::time::sleep(self.settings.limits.grace);
        tokio::pin!(grace);
        let begun = tokio::select! {
            begun = russh::server::run_stream(Arc::new(self.settings.config()), wire, visitor) => begun,
            () = &mut grace => return,
            () = is_set(&mut self.stopping) => return,
        };
        let Ok(mut session) = begun else { return };
        let handle = session.handle();
        tokio::select! {
            _ = &mut session => return,
            () = is_set(&mut has_entered) => {}
            () = &mut grace => return cutter.cut(),
            () = is_set(&mut self.stopping) => return cutter.cut(),
        }
        tokio::select! {
            _ = &mut session => {}
            () = is_set(&mut self.stopping) => {
                let goodbye = handle.disconnect(Disconnect::ByApplication, "the server is stopping".into(), "en".into());
                let end = async {
                    let _ = goodbye.await;
                    let _ = (&mut session).await;
                };
                let _ = tokio::time::timeout(GOODBYE, end).await;
                cutter.cut();
            }
        }
    }
}

/// Waits until it is so; for ever, should nobody be left to say so.
async fn is_set(flag: &mut watch::Receiver<bool>) {
    if flag.wait_for(|set| *set).await.is_err() {
        std::future::pending().await
    }
}
