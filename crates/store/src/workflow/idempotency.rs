//! Outcomes of calls that carried an `Idempotency-Key`.

use tarn_model::Time;
use tarn_model::ids::UserId;
use tarn_model::users::Owner;

use crate::db::params;
use crate::{Error, Result, Tx, usage};

/// The stored outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOutcome {
    /// The hash of the call's parameters.
    pub fingerprint: Vec<u8>,
    /// The outcome, encrypted.
    pub outcome: Vec<u8>,
}

/// Returns the outcome stored for a user's key, if it was used after `since`.
pub fn get(tx: &mut Tx<'_>, user: &UserId, key: &str, since: Time) -> Result<Option<StoredOutcome>> {
    let sql = "select fingerprint, outcome from idempotency where user_id = $1 and key = $2 and created_us > $3";
    tx.row(sql, &params![user, key, since], |row| {
        Ok(StoredOutcome { fingerprint: row.bytes()?, outcome: row.bytes()? })
    })
}

/// Stores the outcome of a call, in the transaction that executes the call. An expired outcome is replaced.
pub fn save_outcome(tx: &mut Tx<'_>, owner: &Owner, key: &str, stored: &StoredOutcome, expired: Time) -> Result<()> {
    let old = "delete from idempotency where user_id = $1 and key = $2 and created_us <= $3 returning scope";
    let replaced = tx.rows(old, &params![owner.user, key, expired], |row| row.text())?;
    usage::subtract_each(tx, &replaced, |count| [0, 0, count])?;
    let sql = "insert into idempotency (user_id, scope, key, fingerprint, outcome, created_us) \
               values ($1, $2, $3, $4, $5, $6)";
    let (now, scope) = (tx.now(), owner.scope());
    let added = tx.execute(sql, &params![owner.user, scope, key, stored.fingerprint, stored.outcome, now]);
    match added {
        // Another replica executes the same call at the moment.
        Err(Error::Taken) => Err(Error::Conflict),
        other => other.map(drop),
    }?;
    usage::add_outcomes(tx, scope, 1)
}

/// Removes outcomes older than `expired`, in batches.
pub fn remove_expired(tx: &mut Tx<'_>, expired: Time) -> Result<u64> {
    let sql = "delete from idempotency where (user_id, key) in \
               (select user_id, key from idempotency where created_us <= $1 limit 1000) returning scope";
    let scopes = tx.rows(sql, &params![expired], |row| row.text())?;
    usage::subtract_each(tx, &scopes, |count| [0, 0, count])
}
