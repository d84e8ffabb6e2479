//! What was answered to calls that carried an `Idempotency-Key`.

use tarn_model::Time;
use tarn_model::ids::UserId;

use crate::{Error, Result, Tx};

/// A call that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The hash of what was asked.
    pub fingerprint: Vec<u8>,
    /// What came of it, sealed.
    pub outcome: Vec<u8>,
}

/// What a user's key of this name stands for, if it was used after `since`.
pub fn get(tx: &mut Tx<'_>, user: &UserId, key: &str, since: Time) -> Result<Option<Kept>> {
    let sql = "select fingerprint, outcome from idempotency where user_id = $1 and key = $2 and created_us > $3";
    let row = tx.query_one(sql, &[user.as_str().into(), key.into(), since.into()])?;
    row.map(|mut row| Ok(Kept { fingerprint: row.bytes()?, outcome: row.bytes()? })).transpose()
}

/// Keeps what came of a call, in the transaction that carries it out. One that has expired is replaced.
pub fn keep(tx: &mut Tx<'_>, user: &UserId, key: &str, kept: &Kept, expired: Time) -> Result<()> {
    let old = "delete from idempotency where user_id = $1 and key = $2 and created_us <= $3";
    tx.execute(old, &[user.as_str().into(), key.into(), expired.into()])?;
    let sql = "insert into idempotency (user_id, key, fingerprint, outcome, created_us) values ($1, $2, $3, $4, $5)";
    let now = tx.now();
    let added = tx.execute(
        sql,
        &[
            user.as_str().into(),
            key.into(),
            kept.fingerprint.as_slice().into(),
            kept.outcome.as_slice().into(),
            now.into(),
        ],
    );
    match added {
        // Another replica carries out the same call at this moment.
        Err(Error::Taken) => Err(Error::Conflict),
        other => other.map(drop),
    }
}

/// Forgets what is older than `expired`, some at a time.
pub fn forget(tx: &mut Tx<'_>, expired: Time) -> Result<u64> {
    let sql = "delete from idempotency where (user_id, key) in \
               (select user_id, key from idempotency where created_us <= $1 limit 1000)";
    tx.execute(sql, &[expired.into()])
}
