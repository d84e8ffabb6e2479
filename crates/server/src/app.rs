//! What every endpoint has at hand.

use std::sync::Arc;

use tarn_control::Control;
use tarn_model::Ids;

use crate::http::body::Validators;
use crate::http::limiter::Limiter;
use crate::http::remember::Answers;

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

/// The control plane behind HTTP. Clones share everything.
#[derive(Clone)]
pub struct App {
    pub(crate) control: Control,
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) limiter: Limiter,
    pub(crate) validators: Validators,
    pub(crate) answers: Answers,
    ids: Arc<dyn Ids>,
}

impl App {
    /// Puts HTTP in front of `control`. The ids of calls come from `ids`.
    pub fn new(control: Control, limits: Limits, ids: Arc<dyn Ids>) -> Self {
        let shared = Shared {
            limiter: Limiter::new(limits),
            validators: Validators::from_document(),
            answers: Answers::default(),
            ids,
        };
        App { control, shared: Arc::new(shared) }
    }

    /// Forgets the rate of keys that have not called for a while, so that memory follows the callers of the last seconds and
    /// not those of all time. To be called every minute or so.
    pub fn forget_idle(&self) {
        self.shared.limiter.forget_idle();
    }

    /// A fresh id for one call, as answers and log lines carry it.
    pub(crate) fn call_id(&self) -> String {
        format!("{:016x}", self.shared.ids.bits())
    }
}
