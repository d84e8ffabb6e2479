//! The runner: leases requests that are due and carries their steps out, one after the other, forward or back.
//!
//! A request in hand is guarded by its epoch: whoever took it over meanwhile makes every write of the former holder fail.
//! Crashing at any point is safe, because the next runner starts at the last committed step, and acts are idempotent.
//! Start reading at [`Runner::tick`].

mod advance;
pub mod faults;
mod service;

use std::sync::Arc;

use tarn_model::Time;
use tarn_model::requests::Request;
use tarn_store::requests;

use crate::requests::LINE_WINDOW;
use crate::{Control, Error, Result};

use faults::Faults;

/// Carries requests out.
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

    /// A runner that misbehaves on purpose, for tests and simulations.
    pub fn with_faults(control: Control, faults: Arc<dyn Faults>) -> Self {
        Runner { control, faults }
    }

    /// To be called once at the start. `alone` says that no other process works on this database, so that leases of before
    /// belong to the dead and end at once.
    pub async fn recover(&self, alone: bool) -> Result<()> {
        let write = self.control.store().write(move |tx| -> Result<()> {
            if alone {
                requests::release_all(tx)?;
            }
            // The machine may have grown since the line was last looked at.
            requests::wake_line(tx, LINE_WINDOW)?;
            Ok(())
        });
        write.await
    }

    /// Does everything that is due, one request after the other, and says when to come again. A simulation owns time with
    /// this; a server uses [`Runner::serve`].
    pub async fn tick(&self) -> Result<Option<Time>> {
        loop {
            let leased = self.lease(self.control.settings().parallel).await?;
            if leased.is_empty() {
                return self.control.store().read(requests::next_due).await.map_err(Error::from);
            }
            for request in leased {
                self.advance(request).await;
            }
        }
    }

    async fn lease(&self, limit: u32) -> Result<Vec<Request>> {
        let lease = self.control.settings().lease;
        self.control.store().write(move |tx| requests::lease_due(tx, lease, limit)).await.map_err(Error::from)
    }
}
