//! The event log: which actor did what to which object, and when. Append-only.

use std::net::IpAddr;

use tarn_model::Time;
use tarn_model::events::Event;
use tarn_model::ids::UserId;

use crate::db::{Row, params};
use crate::{Error, Result, Tx};

/// The actor of events that no user caused, and the scope of those that concern no tenant: the engine itself.
pub const ENGINE: &str = "engine";

/// Where a change came from. Everything is absent for what the engine did by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The user who caused it.
    pub user: Option<UserId>,
    /// The id of the caller's API key, or of their S3 key.
    pub key: Option<String>,
    /// The address of the client.
    pub address: Option<IpAddr>,
    /// The id of the call, which its response and its log lines carry.
    pub call: Option<String>,
}

/// One entry of the event log, as it is stored. An older or newer program may have recorded it.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
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
    /// What it means; `None` if this program does not know it.
    pub event: Option<Event>,
    pub origin: Origin,
}

impl Tx<'_> {
    /// Records an event about a scope, with the origin of this transaction. Its actor is the user, or the engine if the
    /// transaction has none.
    pub fn record(&mut self, scope: &str, event: Event) -> Result<()> {
        let actor = self.origin().user.as_ref().map_or(ENGINE, UserId::as_str).to_owned();
        insert(self, &actor, scope, event)
    }

    /// Records what the holder of a key did: a user, or the organization whose legacy S3 key it is.
    pub fn record_as(&mut self, actor: &str, scope: &str, event: Event) -> Result<()> {
        insert(self, actor, scope, event)
    }

    /// Records what the engine did because of a caller's change, which the caller did not ask for.
    pub fn record_as_engine(&mut self, scope: &str, event: Event) -> Result<()> {
        insert(self, ENGINE, scope, event)
    }
}

fn insert(tx: &mut Tx<'_>, actor: &str, scope: &str, event: Event) -> Result<()> {
    let sql = "insert into events (number, at_us, actor, scope, object, verb, detail, key_id, address, call_id) \
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    let (number, now, detail) = (tx.next_event_number()?, tx.now(), event.data().to_string());
    let Origin { key, address, call, .. } = tx.origin().clone();
    let address = address.map(|address| address.to_string());
    let (object, verb) = (event.object(), event.verb());
    tx.run(sql, &params![number, now, actor, scope, object, verb, detail, key, address, call])
}

/// Returns the number of the newest event; 0 when there is none.
pub fn last_number(tx: &mut Tx<'_>) -> Result<i64> {
    tx.single("select coalesce(max(number), 0) from events", &[], |row| row.integer())
}

/// Returns the events after this number, oldest first.
pub fn after(tx: &mut Tx<'_>, number: i64, limit: u32) -> Result<Vec<Recorded>> {
    let sql = "select number, at_us, actor, object, verb, scope, detail, key_id, address, call_id from events \
         where number > $1 order by number limit $2";
    tx.rows(sql, &params![number, limit], read_recorded)
}

fn read_recorded(row: &mut Row) -> Result<Recorded> {
    let (number, at, actor) = (row.integer()?, row.time()?, row.text()?);
    let (object, verb, scope) = (row.text()?, row.text()?, row.text()?);
    let detail = serde_json::from_str(&row.text()?).map_err(|error| Error::Corrupt(error.to_string()))?;
    let event = Event::parse(&verb, &object, &detail).ok();
    let (user, key) = (actor.parse().ok(), row.maybe_text()?);
    let origin = Origin { user, key, address: read_address(row)?, call: row.maybe_text()? };
    Ok(Recorded { number, at, actor, object, verb, scope, detail, event, origin })
}

fn read_address(row: &mut Row) -> Result<Option<IpAddr>> {
    let text = row.maybe_text()?;
    text.map(|text| text.parse()).transpose().map_err(|_| Error::Corrupt("the address of an event".to_owned()))
}
