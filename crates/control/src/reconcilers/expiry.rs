//! Removes old rows: outcomes of idempotent calls after a day, and what has ended after thirty days. Ends the S3 keys
//! of users who have left their organization: such a key does not work, and must not work again should they return.

use std::time::Duration;

use parking_lot::Mutex;
use tarn_store::{clock, expiry, idempotency as outcomes, s3_keys};

use crate::calls::idempotency::OUTCOME_RETENTION;
use crate::{Control, Error, Result};

/// How long until the next run.
const PAUSE: Duration = Duration::from_secs(10 * 60);

/// How long destroyed clusters and volumes, ended requests and ended S3 keys are kept.
const REMEMBERED: Duration = Duration::from_secs(30 * 24 * 3600);

/// How many S3 keys are examined in one run, and how long until the next while there are more.
const KEYS_AT_ONCE: u32 = 100;
const BETWEEN_KEYS: Duration = Duration::from_secs(1);

/// The S3 key after which the next run continues.
#[derive(Default)]
pub(crate) struct LastKey(Mutex<String>);

/// Removes some old rows; runs again immediately while there are more.
pub async fn tick(control: &Control) -> Result<Duration> {
    let after = control.memory.last_key.0.lock().clone();
    let write = control.store().write(move |tx| {
        let (_, last) = s3_keys::end_of_departed(tx, &after, KEYS_AT_ONCE)?;
        let forgotten = outcomes::remove_expired(tx, tx.now().before(OUTCOME_RETENTION))?;
        let ended = clock::passed_before(tx, REMEMBERED)?;
        Ok((forgotten + expiry::forget_ended(tx, ended)?, last))
    });
    let (forgotten, last) = write.await.map_err(|error: tarn_store::Error| Error::from(error))?;
    let is_last = last.is_none();
    *control.memory.last_key.0.lock() = last.unwrap_or_default();
    Ok(match forgotten {
        0 if is_last => PAUSE,
        0 => BETWEEN_KEYS,
        _ => Duration::ZERO,
    })
}
