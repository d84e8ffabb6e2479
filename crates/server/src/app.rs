//! What every endpoint has at hand.

use std::sync::Arc;

use tarn_control::Control;
use tarn_model::Ids;
use tokio::sync::watch;

use crate::http::input::body::Validators;
use crate::http::jobs::SocketLimits;
use crate::http::middleware::limiter::Limiter;
use crate::http::middleware::response_cache::ResponseCache;

/// How often one API key may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Calls per second in the long run; 0 is no limit.
    pub per_second: u32,
    /// Calls at once after a pause.
    pub burst: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { per_second: 50, burst: 200 }
    }
}

/// How callers find the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Front {
    /// The URL that the operator says they use; without one it is what each of them asked for.
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
    pub(crate) limiter: Limiter,
    pub(crate) validators: Validators,
    pub(crate) response_cache: ResponseCache,
    pub(crate) sockets: SocketLimits,
    /// Whether the engine is about to end, so that nobody should wait for something to come.
    stopping: watch::Sender<bool>,
    ids: Arc<dyn Ids>,
}

impl App {
    /// Puts HTTP in front of `control`. The ids of calls come from `ids`.
    pub fn new(control: Control, limits: Limits, front: Front, ids: Arc<dyn Ids>) -> Self {
        let shared = Shared {
            front,
            limiter: Limiter::new(limits),
            validators: Validators::from_document(),
            response_cache: ResponseCache::default(),
            sockets: SocketLimits::default(),
            stopping: watch::Sender::new(false),
            ids,
        };
        App { control, shared: Arc::new(shared) }
    }

    /// Returns when the engine is about to end.
    pub(crate) async fn stopping(&self) {
        // The sender is held here, so that it cannot be gone.
        let _ = self.shared.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    /// ResponseCache all who wait for something to come with what there is, because the engine is about to end.
    pub fn stop_waiting(&self) {
        self.shared.stopping.send_replace(true);
    }

    /// Forgets the rate of keys that have not called for a while, so that memory follows the callers of the last seconds and
    /// not those of all time. To be called every minute or so.
    pub fn forget_idle(&self) {
        self.shared.limiter.forget_idle();
    }

    /// A fresh id for one call, as responses and log lines carry it.
    pub(crate) fn call_id(&self) -> String {
        format!("{:016x}", self.shared.ids.bits())
    }
}
