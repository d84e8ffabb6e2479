//! What is true of the whole installation: what is written once, such as the fingerprint of its master key, and what it saw last.

use crate::{Error, Result, Tx};

/// Keeps `value` under `key` unless something is kept there already, and returns what is kept.
pub fn remember_once(tx: &mut Tx<'_>, key: &str, value: &str) -> Result<String> {
    let sql = "insert into installation (key, value) values ($1, $2) on conflict do nothing";
    tx.execute(sql, &[key.into(), value.into()])?;
    get(tx, key)?.ok_or(Error::Conflict)
}

/// Keeps `value` under `key`, in the place of what was kept there.
pub fn set(tx: &mut Tx<'_>, key: &str, value: &str) -> Result<()> {
    let sql = "insert into installation (key, value) values ($1, $2) on conflict (key) do update set value = $2";
    tx.execute(sql, &[key.into(), value.into()])?;
    Ok(())
}

/// What is kept under `key`.
pub fn get(tx: &mut Tx<'_>, key: &str) -> Result<Option<String>> {
    let row = tx.query_one("select value from installation where key = $1", &[key.into()])?;
    row.map(|mut row| row.text()).transpose()
}
