//! The event log: which actor did what to which object, and when. Append-only.

use std::net::IpAddr;

use tarn_model::Time;

use crate::db::{Row, params};
use crate::{Error, Result, Tx};

/// The actor of events that no user caused: the engine itself.
pub const ENGINE: &str = "engine";

/// Where a change came from. Everything is absent for what the engine did by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The id of the caller's API key, or of their S3 key.
    pub key: Option<String>,
    /// The address of the client.
    pub address: Option<IpAddr>,
    /// The id of the call, which its response and its log lines carry.
    pub call: Option<String>,
}

/// One entry of the event log.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The number of the event. A reader that has seen one never sees a smaller one later.
    pub number: i64,
    pub at: Time,
    /// The id of the user, or of the organization whose legacy S3 key was used, or [`ENGINE`].
    pub actor: String,
    /// The id of the object.
    pub object: String,
    /// The event verb, as `noun.verb`.
    pub verb: String,
    /// The organization, or the user without one, that it is about.
    pub scope: String,
    /// Details of the event; never a secret.
    pub detail: serde_json::Value,
    pub origin: Origin,
}

/// Adds an event within this transaction, with the origin of the transaction.
pub fn record(
    tx: &mut Tx<'_>,
    actor: &str,
    scope: &str,
    object: &str,
    verb: &str,
    detail: &serde_json::Value,
) -> Result<()> {
    let sql = "insert into events (number, at_us, actor, scope, object, verb, detail, key_id, address, call_id) \
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    let (number, now, detail) = (tx.next_event_number()?, tx.now(), detail.to_string());
    let Origin { key, address, call } = tx.origin().clone();
    let address = address.map(|address| address.to_string());
    tx.run(sql, &params![number, now, actor, scope, object, verb, detail, key, address, call])
}

/// Returns the number of the newest event; 0 when there is none.
pub fn last_number(tx: &mut Tx<'_>) -> Result<i64> {
    tx.single("select coalesce(max(number), 0) from events", &[], |row| row.integer())
}

/// Returns the events after this number, oldest first.
pub fn after(tx: &mut Tx<'_>, number: i64, limit: u32) -> Result<Vec<Event>> {
    let sql = "select number, at_us, actor, object, verb, scope, detail, key_id, address, call_id from events \
         where number > $1 order by number limit $2";
    tx.rows(sql, &params![number, limit], |row| {
        Ok(Event {
            number: row.integer()?,
            at: row.time()?,
            actor: row.text()?,
            object: row.text()?,
            verb: row.text()?,
            scope: row.text()?,
            detail: serde_json::from_str(&row.text()?).map_err(|error| Error::Corrupt(error.to_string()))?,
            origin: Origin { key: row.maybe_text()?, address: read_address(row)?, call: row.maybe_text()? },
        })
    })
}

fn read_address(row: &mut Row) -> Result<Option<IpAddr>> {
    let text = row.maybe_text()?;
    text.map(|text| text.parse()).transpose().map_err(|_| Error::Corrupt("the address of an event".to_owned()))
}
