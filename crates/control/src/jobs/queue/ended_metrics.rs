//! What is written down and counted when a job ends, whoever ends it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tarn_model::jobs::{Job, State};
use tarn_store::{Tx, events};

use crate::Result;

/// The ends that a transaction writes down. It may run more than once, so they are counted when it is committed.
#[derive(Clone, Default)]
pub(crate) struct Ends(Arc<Mutex<Vec<&'static str>>>);

impl Ends {
    /// To be called when the transaction begins, perhaps for another time.
    pub(crate) fn begin(&self) {
        self.lock().clear();
    }

    /// Writes down that a job has ended, if it has.
    pub(crate) fn record(&self, tx: &mut Tx<'_>, job: &Job) -> Result<()> {
        let State::Ended(outcome) = &job.state else { return Ok(()) };
        let (status, exit_code) = (outcome.status(), outcome.exit_code());
        let detail = serde_json::json!({ "status": status, "exit_code": exit_code, "attempt": job.attempt });
        events::record(tx, events::ENGINE, job.owner.scope(), job.id.as_str(), "job.ended", &detail)?;
        self.lock().push(status);
        Ok(())
    }

    /// Counts them, after the transaction was committed.
    pub(crate) fn count(&self) {
        for status in self.lock().drain(..) {
            metrics::counter!("tarn_jobs_ended_total", "status" => status).increment(1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<&'static str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
