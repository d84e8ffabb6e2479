//! Removes old rows: outcomes of idempotent calls after a day, and what has ended after thirty days. Ends the S3 keys
//! of users who have left their organization.

use std::time::Duration;

use tarn_store::{clock, expiry, idempotency as outcomes, s3_keys};

use crate::calls::idempotency::OUTCOME_RETENTION;
use crate::{Control, Error, Result};

/// How long until the next run.
const PAUSE: Duration = Duration::from_secs(10 * 60);

/// How long destroyed clusters and volumes, ended requests and ended S3 keys are kept.
const REMEMBERED: Duration = Duration::from_secs(30 * 24 * 3600);

/// Removes some old rows; runs again immediately while there are more.
pub async fn tick(control: &Control) -> Result<Duration> {
    let write = control.store().write(|tx| {
        s3_keys::end_of_departed(tx)?;
        let forgotten = outcomes::remove_expired(tx, tx.now().before(OUTCOME_RETENTION))?;
        let ended = clock::passed_before(tx, REMEMBERED)?;
        Ok(forgotten + expiry::forget_ended(tx, ended)?)
    });
    match write.await.map_err(|error: tarn_store::Error| Error::from(error))? {
        0 => Ok(PAUSE),
        _ => Ok(Duration::ZERO),
    }
}
