//! The runner leases requests that are due and runs their steps, one after the other, forward or undoing.
//!
//! A leased request is guarded by its epoch: when another runner takes it over, every write of the previous one fails.
//! Crashing at any point is safe, because the next runner starts at the last committed step, and actions are
//! idempotent. Start reading at [`Runner::tick`].

mod advance;
pub mod faults;
mod service;

use std::sync::Arc;

use tarn_model::Time;
use tarn_model::requests::Request;
use tarn_store::{line, requests};

use crate::{Control, Error, Result};

use faults::Faults;

/// Runs requests.
#[derive(Clone)]
pub struct Runner {
    control: Control,
    faults: Arc<dyn Faults>,
}

impl Runner {
    /// A runner for production.
    pub fn new(control: Control) -> Self {
        Runner { control, faults: Arc::new(faults::Never) }
    }

    /// A runner that injects faults, for tests and simulations.
    pub fn with_faults(control: Control, faults: Arc<dyn Faults>) -> Self {
        Runner { control, faults }
    }

    /// Is called once at the start. `alone` means that no other process works on this database, so that leases of
    /// earlier processes end immediately.
    pub async fn recover(&self, alone: bool) -> Result<()> {
        let write = self.control.store().write(move |tx| -> Result<()> {
            if alone {
                requests::release_all(tx)?;
            }
            // The host may have grown since the queue was last considered.
            line::wake(tx)?;
            Ok(())
        });
        write.await
    }

    /// Runs everything that is due, one request after the other, and returns when the next one is due. Simulations call
    /// this because they control the time; a server uses [`Runner::serve`].
    pub async fn tick(&self) -> Result<Option<Time>> {
        loop {
            let leased = self.lease_requests(self.control.settings().parallel).await?;
            if leased.is_empty() {
                return self.control.store().read(requests::next_due).await.map_err(Error::from);
            }
            for request in leased {
                self.advance(request).await;
            }
        }
    }

    async fn lease_requests(&self, limit: u32) -> Result<Vec<Request>> {
        let lease = self.control.settings().lease;
        self.control.store().write(move |tx| requests::lease_due(tx, lease, limit)).await.map_err(Error::from)
    }
}
