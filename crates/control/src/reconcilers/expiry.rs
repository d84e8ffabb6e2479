//! Forgets the outcomes of idempotent calls after their day.

use std::time::Duration;

use tarn_store::idempotency;

use crate::{Control, Error, Result, once};

/// How long until it should run again.
const PAUSE: Duration = Duration::from_secs(10 * 60);

/// Forgets some of what is too old; comes again at once while there is more.
pub async fn tick(control: &Control) -> Result<Duration> {
    let write = control.store().write(|tx| idempotency::forget(tx, tx.now().before(once::KEPT)));
    match write.await.map_err(Error::from)? {
        0 => Ok(PAUSE),
        _ => Ok(Duration::ZERO),
    }
}
