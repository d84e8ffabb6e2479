//! The event and the metric of an ended job, the same for every code path that ends one.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tarn_model::events::{Event, JobEvent};
use tarn_model::jobs::{Job, State};
use tarn_store::Tx;

use crate::Result;

/// The jobs that a transaction ends. The transaction may run more than once, so they are counted after its commit.
#[derive(Clone, Default)]
pub(crate) struct EndedMetrics(Arc<Mutex<Vec<&'static str>>>);

impl EndedMetrics {
    /// Must be called at the start of the transaction, which may be a repeated one.
    pub(crate) fn reset(&self) {
        self.lock().clear();
    }

    /// Records the event of a job that has ended; does nothing for a job that has not.
    pub(crate) fn record_end(&self, tx: &mut Tx<'_>, job: &Job) -> Result<()> {
        let State::Ended(outcome) = &job.state else { return Ok(()) };
        let (status, exit_code) = (outcome.status(), outcome.exit_code());
        let ended = JobEvent::Ended { status: status.to_owned(), exit_code, attempt: job.attempt };
        tx.record_as_engine(job.owner.scope(), Event::Job(job.id.clone(), ended))?;
        self.lock().push(status);
        Ok(())
    }

    /// Counts the ended jobs. Must be called after the commit.
    pub(crate) fn count_ended(&self) {
        for status in self.lock().drain(..) {
            metrics::counter!("tarn_jobs_ended_total", "status" => status).increment(1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<&'static str>> {
        self.0.lock()
    }
}
