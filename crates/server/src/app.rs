//! The state that every endpoint shares.

use std::sync::Arc;

use tarn_control::Control;
use tarn_model::Ids;
use tokio::sync::watch;

use crate::http::input::body::Validators;
use crate::http::jobs::SocketLimits;
use crate::http::middleware::limiter::Limiter;
use crate::http::middleware::response_cache::ResponseCache;
use crate::serve::UserConnections;

/// More than all listeners admit: only the shares are limits here.
const MAX_CONNECTIONS: usize = 1 << 20;

/// How much one API key, one user and one organization may use of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Calls per second with one key in the long run; 0 is no limit.
    pub per_second: u32,
    /// Calls at once with one key after a pause.
    pub burst: u32,
    /// How many connections one user may have open at the same time, whatever their addresses.
    pub user_connections: usize,
    /// How many those of one organization may have.
    pub organization_connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        // An organization has half of the connections that a listener admits.
        Limits { per_second: 50, burst: 200, user_connections: 1024, organization_connections: 2048 }
    }
}

/// The address by which clients reach the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Front {
    /// The URL that the operator configured; without one it is the address that each client used.
    pub public_url: Option<String>,
    /// Whether the listener speaks TLS.
    pub tls: bool,
}

/// The control plane behind HTTP. Clones share everything.
#[derive(Clone)]
pub struct App {
    pub(crate) control: Control,
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) front: Front,
    pub(crate) limits: Limits,
    pub(crate) limiter: Limiter,
    pub(crate) validators: Validators,
    pub(crate) response_cache: ResponseCache,
    pub(crate) sockets: SocketLimits,
    /// The connections of each user and of each organization.
    pub(crate) connections: UserConnections,
    /// Whether the engine is stopping, so that no call should keep waiting for an event.
    stopping: watch::Sender<bool>,
    /// What the engine waits for before it works on requests; it serves reads meanwhile.
    waiting: watch::Sender<Option<String>>,
    ids: Arc<dyn Ids>,
}

impl App {
    /// Puts HTTP in front of `control`. The ids of calls come from `ids`.
    pub fn new(control: Control, limits: Limits, front: Front, ids: Arc<dyn Ids>) -> Self {
        let (of_user, of_organization) = (limits.user_connections, limits.organization_connections);
        let shared = Shared {
            front,
            limits,
            limiter: Limiter::new(limits),
            validators: Validators::from_document(),
            response_cache: ResponseCache::default(),
            sockets: SocketLimits::default(),
            connections: UserConnections::new(MAX_CONNECTIONS, of_user, of_organization),
            stopping: watch::Sender::new(false),
            waiting: watch::Sender::new(None),
            ids,
        };
        App { control, shared: Arc::new(shared) }
    }

    /// Returns when the engine is stopping.
    pub(crate) async fn stopping(&self) {
        // The sender is in `shared`, so the channel cannot be closed.
        let _ = self.shared.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    /// Makes all calls that wait for an event respond with what there is, because the engine is stopping.
    pub fn stop_waiting(&self) {
        self.shared.stopping.send_replace(true);
    }

    /// Tells probes what the engine waits for before it works on requests, or that it waits no more.
    pub fn set_waiting(&self, reason: Option<String>) {
        self.shared.waiting.send_replace(reason);
    }

    /// Returns what the engine waits for before it works on requests.
    pub(crate) fn waiting_reason(&self) -> Option<String> {
        self.shared.waiting.borrow().clone()
    }

    /// Drops the rate limits of keys without recent calls, so that memory is bounded by the callers of the last
    /// seconds. Should be called about every minute.
    pub fn forget_idle(&self) {
        self.shared.limiter.forget_idle();
    }

    /// Returns a fresh id for one call, which responses and log lines carry.
    pub(crate) fn call_id(&self) -> String {
        format!("{:016x}", self.shared.ids.bits())
    }
}
