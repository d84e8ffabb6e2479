//! The pool that all volumes share, and how much of it can still be promised.

use tarn_store::{Tx, storage};

use crate::{Control, Error, Kind, Result};

/// The size of the pool. It is observed before each transaction that promises space, because other data may fill the
/// same disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool {
    has_gb: u64,
    limit_gb: u64,
}

impl Pool {
    /// Observes the pool through the driver.
    pub(super) async fn observe_pool(control: &Control) -> Result<Self> {
        let (bytes, settings) = (control.driver().pool().await?, control.settings());
        let has_gb = (bytes / 1_000_000_000).min(settings.storage_cap_gb.unwrap_or(u64::MAX));
        Ok(Pool { has_gb, limit_gb: (has_gb as f64 * settings.storage_overcommit) as u64 })
    }

    /// Refuses to promise more than the pool has, or than the operator allows.
    pub(super) fn check_pool_room(self, tx: &mut Tx<'_>, more_gb: u64) -> Result<()> {
        let Pool { has_gb, limit_gb } = self;
        let promised_gb = storage::promised_gb(tx)?;
        if promised_gb.saturating_add(more_gb) <= limit_gb {
            return Ok(());
        }
        let free_gb = limit_gb.saturating_sub(promised_gb);
        let overcommit = if limit_gb == has_gb { String::new() } else { format!(" and may promise {limit_gb} GB") };
        let message = format!(
            "the storage pool has {has_gb} GB{overcommit}: {promised_gb} GB are promised, {free_gb} GB are free, \
             and this call needs {more_gb} GB more; request less, or destroy storage you no longer need"
        );
        Err(Error::new(Kind::Capacity, "pool_full", message))
    }
}
