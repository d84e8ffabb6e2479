//! Facts about the whole installation: those written once, such as the fingerprint of its master key, and those that
//! are updated.

use tarn_model::Time;
use tarn_model::host_binding::{HostBinding, Place};

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

/// The name of the binding to an installation of the local driver: its id, when its engine was seen, and its seat.
const HOST_BINDING: &str = "local_driver";

/// Returns to which installation of the local driver the database is bound.
pub fn host_binding(tx: &mut Tx<'_>) -> Result<Option<HostBinding>> {
    let Some(text) = get(tx, HOST_BINDING)? else { return Ok(None) };
    parse_host_binding(&text).map(Some).ok_or_else(|| Error::Corrupt(format!("the binding {text:?} to a host")))
}

/// Binds the database to an installation of the local driver.
pub fn set_host_binding(tx: &mut Tx<'_>, binding: &HostBinding) -> Result<()> {
    let seen = binding.seen.map_or_else(|| "stopped".to_owned(), |seen| seen.as_micros().to_string());
    set(tx, HOST_BINDING, &format!("{} {seen} {}", binding.place.installation, binding.place.seat))
}

fn parse_host_binding(text: &str) -> Option<HostBinding> {
    let (installation, rest) = text.split_once(' ')?;
    let (seen, seat) = rest.split_once(' ')?;
    let seen = match seen {
        "stopped" => None,
        micros => Some(Time::from_micros(micros.parse().ok()?)),
    };
    Some(HostBinding { place: Place { installation: installation.to_owned(), seat: seat.to_owned() }, seen })
}
