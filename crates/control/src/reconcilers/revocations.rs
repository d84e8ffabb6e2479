//! Ends what is open for callers and logins whose access ended: sockets, long polls, transfers and SSH sessions.
//!
//! All of them are checked together: each is checked once after it began, and again when there is a new event, because
//! every change of access is one. So the cost grows with what changes, and a change by another replica is noticed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tarn_model::events::{Event, InstanceEvent};
use tarn_model::ids::ApiKeyId;
use tarn_model::users::User;
use tarn_store::events::{self, Origin};
use tarn_store::{Tx, cluster_access, users};

use crate::calls::held_access::{AccessEnd, HeldCaller};
use crate::in_memory::access_holds::Checked;
use crate::operations::gateway::{self, HeldLogin};
use crate::{Control, Result};

/// How often access is checked without a notification: another replica may have withdrawn it.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Everything is checked again after this many seconds even if there is no event.
const RECHECK_SECONDS: i64 = 30;

/// Completes when access may have ended.
pub async fn changed(control: &Control) {
    control.memory.access_ended.notified().await;
}

/// Checks what is open, and ends what has no access any more. A failed check is repeated soon.
pub async fn tick(control: &Control) -> Result<Duration> {
    if let Err(error) = end_withdrawn(control).await {
        tracing::warn!(%error, cause = ?error.cause, "open sockets and sessions could not be checked");
    }
    Ok(CHECK_INTERVAL)
}

/// What a check found.
struct Verdicts {
    at: Checked,
    callers: Vec<(u64, Option<AccessEnd>)>,
    logins: Vec<(u64, Arc<HeldLogin>, Option<String>)>,
}

async fn end_withdrawn(control: &Control) -> Result<()> {
    let memory = &control.memory;
    if memory.held_callers.is_empty() && memory.held_logins.is_empty() {
        return Ok(());
    }
    let verdicts = control.store().read(|tx| check_all(control, tx)).await?;
    let mut ended = Vec::new();
    memory.held_callers.mark_checked(verdicts.callers.iter().map(|(number, _)| *number), verdicts.at);
    for (number, end) in verdicts.callers {
        if let Some(end) = end {
            memory.held_callers.end(number, end);
        }
    }
    memory.held_logins.mark_checked(verdicts.logins.iter().map(|(number, ..)| *number), verdicts.at);
    for (number, login, why) in verdicts.logins {
        if let Some(why) = why {
            memory.held_logins.end(number, why.clone());
            ended.push((login, why));
        }
    }
    record_ended(control, ended).await
}

fn check_all(control: &Control, tx: &mut Tx<'_>) -> Result<Verdicts> {
    // The number is read in the same snapshot as the rows, so a change after it leads to another check.
    let at = (events::last_number(tx)?, tx.now().as_micros() / 1_000_000 / RECHECK_SECONDS);
    let callers = control.memory.held_callers.due(at);
    let logins = control.memory.held_logins.due(at);
    Ok(Verdicts { at, callers: check_callers(tx, callers)?, logins: check_logins(tx, logins)? })
}

fn check_callers(tx: &mut Tx<'_>, due: Vec<(u64, Arc<HeldCaller>)>) -> Result<Vec<(u64, Option<AccessEnd>)>> {
    let mut keys: Vec<&str> = due.iter().map(|(_, held)| held.key.as_str()).collect();
    keys.sort_unstable();
    keys.dedup();
    let holders: HashMap<ApiKeyId, User> =
        users::holders(tx, &keys)?.into_iter().map(|(user, key)| (key, user)).collect();
    Ok(due.iter().map(|(number, held)| (*number, held.access_end(holders.get(&held.key)))).collect())
}

#[expect(clippy::type_complexity, reason = "the parts have no meaning together")]
fn check_logins(
    tx: &mut Tx<'_>,
    due: Vec<(u64, Arc<HeldLogin>)>,
) -> Result<Vec<(u64, Arc<HeldLogin>, Option<String>)>> {
    let mut pairs: Vec<(&str, &str)> =
        due.iter().map(|(_, held)| (held.fingerprint.as_str(), held.cluster.as_str())).collect();
    pairs.sort_unstable();
    pairs.dedup();
    let open = cluster_access::still_open(tx, &pairs)?;
    let mut checked = Vec::with_capacity(due.len());
    for (number, held) in due {
        let is_open = open.contains(&(held.fingerprint.clone(), held.cluster.to_string()));
        let why = if is_open { None } else { Some(gateway::why_closed(tx, &held)?) };
        checked.push((number, held, why));
    }
    Ok(checked)
}

/// Records which sessions were ended, and why.
async fn record_ended(control: &Control, ended: Vec<(Arc<HeldLogin>, String)>) -> Result<()> {
    if ended.is_empty() {
        return Ok(());
    }
    let write = control.store().write(move |tx| -> Result<()> {
        for (login, why) in &ended {
            tx.set_origin(Origin { address: Some(login.from.ip().to_canonical()), ..Origin::default() });
            let (user, fingerprint) = (login.user.clone(), login.fingerprint.clone());
            let ended = InstanceEvent::SessionEnded { user, fingerprint, reason: why.clone() };
            tx.record(&login.scope, Event::Instance(login.instance.clone(), ended))?;
        }
        Ok(())
    });
    write.await
}
