//! Forgets what is too old: outcomes of idempotent calls after their day, and what ended after thirty days.

use std::time::Duration;

use tarn_store::{expiry, idempotency};

use crate::{Control, Error, Result, once};

/// How long until it should run again.
const PAUSE: Duration = Duration::from_secs(10 * 60);

/// How long destroyed clusters and volumes and ended requests can be looked at.
const REMEMBERED: Duration = Duration::from_secs(30 * 24 * 3600);

/// Forgets some of what is too old; comes again at once while there is more.
pub async fn tick(control: &Control) -> Result<Duration> {
    let write = control.store().write(|tx| {
        let outcomes = idempotency::remove_expired(tx, tx.now().before(once::KEPT))?;
        Ok(outcomes + expiry::forget_ended(tx, tx.now().before(REMEMBERED))?)
    });
    match write.await.map_err(|error: tarn_store::Error| Error::from(error))? {
        0 => Ok(PAUSE),
        _ => Ok(Duration::ZERO),
    }
}
