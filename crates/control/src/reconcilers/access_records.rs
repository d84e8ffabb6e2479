//! Stores what is counted in memory about the use of access: when API keys were last used, and which logins were
//! refused. What was not stored when an engine is killed is lost: at most a minute.

use std::time::Duration;

use tarn_model::events::{Event, LoginEvent};
use tarn_store::events::{self, Origin};
use tarn_store::users;

use crate::{Control, Error, Result};

/// How often it is stored.
const STORE_INTERVAL: Duration = Duration::from_secs(60);

/// How many uses of keys are stored in one transaction.
const BATCH: usize = 500;

/// Stores everything, and returns when it should be stored again.
pub async fn tick(control: &Control) -> Result<Duration> {
    store(control).await.map(|()| STORE_INTERVAL)
}

/// Stores everything that is not stored yet.
pub async fn store(control: &Control) -> Result<()> {
    store_key_usage(control).await?;
    store_refused_logins(control).await
}

async fn store_key_usage(control: &Control) -> Result<()> {
    let usage = &control.memory.key_usage;
    loop {
        let taken = usage.take(BATCH);
        if taken.is_empty() {
            return Ok(());
        }
        let batch = taken.clone();
        let write = control.store().write(move |tx| -> Result<()> {
            batch.iter().try_for_each(|(key, at)| users::record_use(tx, key, *at)).map_err(Error::from)
        });
        if let Err(error) = write.await {
            taken.iter().for_each(|(key, at)| usage.record(key, *at));
            return Err(error);
        }
    }
}

async fn store_refused_logins(control: &Control) -> Result<()> {
    let taken = control.memory.refused_logins.take();
    if taken.is_empty() {
        return Ok(());
    }
    let groups = taken.clone();
    let write = control.store().write(move |tx| -> Result<()> {
        for (group, count) in &groups {
            tx.set_origin(Origin { address: group.address, ..Origin::default() });
            let via = group.via.name();
            let refused = LoginEvent::Refused { via: via.to_owned(), reason: group.reason.to_owned(), count: *count };
            // Logins of unknown users concern the engine.
            let (object, scope) =
                group.user.as_ref().map_or((via, events::ENGINE), |(user, scope)| (user.as_str(), scope.as_str()));
            tx.record(scope, Event::Login(object.to_owned(), refused))?;
        }
        Ok(())
    });
    write.await.inspect_err(|_| control.memory.refused_logins.put_back(taken))
}
