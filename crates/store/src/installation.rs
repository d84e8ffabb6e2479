//! Facts about the whole installation: those written once, such as the fingerprint of its master key, and those that
//! are updated.

use crate::db::params;
use crate::{Error, Result, Tx};

/// Stores `value` under `key` unless a value is stored there already, and returns the stored value.
pub fn remember_once(tx: &mut Tx<'_>, key: &str, value: &str) -> Result<String> {
    let sql = "insert into installation (key, value) values ($1, $2) on conflict do nothing";
    tx.execute(sql, &params![key, value])?;
    get(tx, key)?.ok_or(Error::Conflict)
}

/// Stores `value` under `key` and replaces the previous value.
pub fn set(tx: &mut Tx<'_>, key: &str, value: &str) -> Result<()> {
    let sql = "insert into installation (key, value) values ($1, $2) on conflict (key) do update set value = $2";
    tx.run(sql, &params![key, value])
}

/// Returns whether the installation existed before schema 9. Such an installation keeps the defaults that it was set up
/// with where newer ones are stricter.
pub fn keeps_permissive_defaults(tx: &mut Tx<'_>) -> Result<bool> {
    Ok(get(tx, "permissive_defaults")?.is_some())
}

/// Removes every fact except those under these keys.
pub fn retain(tx: &mut Tx<'_>, keys: &[&str]) -> Result<()> {
    for key in tx.rows("select key from installation", &[], |row| row.text())? {
        if !keys.contains(&key.as_str()) {
            tx.run("delete from installation where key = $1", &params![key])?;
        }
    }
    Ok(())
}

/// Returns the value stored under `key`.
pub fn get(tx: &mut Tx<'_>, key: &str) -> Result<Option<String>> {
    tx.row("select value from installation where key = $1", &params![key], |row| row.text())
}
