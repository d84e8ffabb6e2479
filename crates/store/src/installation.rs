//! Facts about the whole installation: those written once, such as the fingerprint of its master key, and those that
//! are updated.

use tarn_model::Time;
use tarn_model::host_binding::{DriverBinding, HostBinding, Place};

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

/// The name of the binding to a driver: to an installation of the local driver, with its id, when its engine was seen,
/// and its seat, or to [`FAKE_DRIVER`].
const DRIVER_BINDING: &str = "local_driver";

/// Stands for the fake driver, which has no installation.
const FAKE_DRIVER: &str = "fake";

/// Returns which driver the database is bound to.
pub fn driver_binding(tx: &mut Tx<'_>) -> Result<Option<DriverBinding>> {
    let Some(text) = get(tx, DRIVER_BINDING)? else { return Ok(None) };
    if text == FAKE_DRIVER {
        return Ok(Some(DriverBinding::Fake));
    }
    let bound = parse_host_binding(&text).map(DriverBinding::Host);
    bound.map(Some).ok_or_else(|| Error::Corrupt(format!("the binding {text:?} to a driver")))
}

/// Binds the database to a driver.
pub fn set_driver_binding(tx: &mut Tx<'_>, binding: &DriverBinding) -> Result<()> {
    let DriverBinding::Host(HostBinding { place, seen }) = binding else {
        return set(tx, DRIVER_BINDING, FAKE_DRIVER);
    };
    let seen = seen.map_or_else(|| "stopped".to_owned(), |seen| seen.as_micros().to_string());
    set(tx, DRIVER_BINDING, &format!("{} {seen} {}", place.installation, place.seat))
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
