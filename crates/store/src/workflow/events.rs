//! The event log: which actor did what to which object, and when. Append-only.

use tarn_model::Time;

use crate::db::params;
use crate::{Error, Result, Tx};

/// The actor of events that no user caused: the engine itself.
pub const ENGINE: &str = "engine";

/// One entry of the event log.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The number of the event. A reader that has seen one never sees a smaller one later.
    pub number: i64,
    pub at: Time,
    /// The id of the user, or [`ENGINE`].
    pub actor: String,
    /// The id of the object.
    pub object: String,
    /// The event verb, as `noun.verb`.
    pub verb: String,
    /// Details of the event; never a secret.
    pub detail: serde_json::Value,
}

/// Adds an event within this transaction.
pub fn record(
    tx: &mut Tx<'_>,
    actor: &str,
    scope: &str,
    object: &str,
    verb: &str,
    detail: &serde_json::Value,
) -> Result<()> {
    let sql =
        "insert into events (number, at_us, actor, scope, object, verb, detail) values ($1, $2, $3, $4, $5, $6, $7)";
    let (number, now, detail) = (tx.next_event_number()?, tx.now(), detail.to_string());
    tx.run(sql, &params![number, now, actor, scope, object, verb, detail])
}

/// Returns the events after this number, oldest first.
pub fn after(tx: &mut Tx<'_>, number: i64, limit: u32) -> Result<Vec<Event>> {
    let sql =
        "select number, at_us, actor, object, verb, detail from events where number > $1 order by number limit $2";
    tx.rows(sql, &params![number, limit], |row| {
        Ok(Event {
            number: row.integer()?,
            at: row.time()?,
            actor: row.text()?,
            object: row.text()?,
            verb: row.text()?,
            detail: serde_json::from_str(&row.text()?).map_err(|error| Error::Corrupt(error.to_string()))?,
        })
    })
}
