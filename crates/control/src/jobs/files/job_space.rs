//! The limit of what is kept for the jobs of an organization, or of a user without one: files, logs and outputs.
//!
//! The transaction that stores something checks the limit exactly ([`require_room`]). What is still arriving is in no
//! row: a [`Reservation`] counts it in memory, so that many uploads together cannot fill the disk before the first is
//! stored.

use std::collections::HashMap;

use parking_lot::Mutex;
use tarn_model::ids::JobId;
use tarn_model::limits::{Amounts, Limits};
use tarn_store::{Tx, limits, usage};

use crate::{Control, Error, Result};

/// After so many more bytes of unknown total size the room is checked again.
const CHECK_BYTES: u64 = 4 << 20;

/// How many bytes are arriving for the jobs of each scope.
#[derive(Default)]
pub(crate) struct ArrivingBytes(Mutex<HashMap<String, u64>>);

/// Bytes that are arriving for a job. They are released on drop: what was stored is counted in the database by then.
pub(crate) struct Reservation {
    control: Control,
    scope: String,
    /// How many bytes are reserved.
    bytes: u64,
    /// How many of them have arrived.
    arrived: u64,
    /// How many bytes an object that is replaced frees.
    frees: u64,
}

impl Reservation {
    /// Reserves the declared size of an object, or refuses it. `frees` is the size of the object that it replaces.
    pub(crate) async fn new(control: &Control, job: &JobId, declared: Option<u64>, frees: u64) -> Result<Self> {
        let found = control.store().read(|tx| usage::of_job(tx, job)).await.map_err(Error::from)?;
        let scope = found.map(|(scope, _)| scope).ok_or_else(|| Error::not_found("job", job.as_str()))?;
        let mut new = Reservation { control: control.clone(), scope, bytes: 0, arrived: 0, frees };
        new.reserve(declared.unwrap_or(0).max(1)).await?;
        Ok(new)
    }

    /// Counts bytes that have arrived, and reserves more where they exceed what was reserved.
    pub(crate) async fn add_arrived(&mut self, bytes: u64) -> Result<()> {
        self.arrived += bytes;
        if self.arrived > self.bytes { self.reserve(self.arrived - self.bytes).await } else { Ok(()) }
    }

    /// Reserves `more` bytes. The room is read again after [`CHECK_BYTES`]; the transaction that stores them is exact.
    async fn reserve(&mut self, more: u64) -> Result<()> {
        let is_due = self.bytes == 0 || self.bytes / CHECK_BYTES != (self.bytes + more) / CHECK_BYTES;
        self.bytes += more;
        let arriving = {
            let mut scopes = self.control.memory.arriving_job_bytes.0.lock();
            let arriving = scopes.entry(self.scope.clone()).or_default();
            *arriving += more;
            *arriving
        };
        if !is_due {
            return Ok(());
        }
        let (control, frees) = (&self.control, self.frees);
        let others = arriving - self.bytes;
        let check = control.store().read(|tx| -> Result<()> {
            let used = usage::job_bytes(tx, &self.scope)?.saturating_sub(frees).saturating_add(others);
            check_room(tx, control, &self.scope, used, self.bytes)
        });
        check.await
    }

    /// Returns how many bytes have arrived.
    pub(crate) fn arrived(&self) -> u64 {
        self.arrived
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut scopes = self.control.memory.arriving_job_bytes.0.lock();
        if let Some(arriving) = scopes.get_mut(&self.scope) {
            *arriving = arriving.saturating_sub(self.bytes);
            if *arriving == 0 {
                scopes.remove(&self.scope);
            }
        }
    }
}

/// Refuses a transaction that has stored `more` bytes for a job and so exceeds the limit of its owner.
pub(crate) fn require_room(tx: &mut Tx<'_>, control: &Control, job: &JobId, more: u64) -> Result<()> {
    let (scope, used) = usage::of_job(tx, job)?.ok_or_else(|| Error::not_found("job", job.as_str()))?;
    check_room(tx, control, &scope, used.saturating_sub(more), more)
}

/// Returns whether an error says that the limit is reached.
pub(crate) fn is_limit_reached(error: &Error) -> bool {
    error.code == "limit_reached"
}

fn check_room(tx: &mut Tx<'_>, control: &Control, scope: &str, used: u64, more: u64) -> Result<()> {
    let job_bytes = limits::job_bytes(tx, scope)?.or(control.settings().limits.job_bytes);
    let limits = Limits { job_bytes, ..Limits::default() };
    let amount = |job_bytes| Amounts { job_bytes, ..Amounts::default() };
    Ok(limits.admit(scope, &amount(used), &amount(more))?)
}
