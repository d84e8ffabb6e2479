//! Binds a database that several engines can open to the local driver of one of them.

use std::path::Path;

use tarn_control::host_binding;
use tarn_driver::local::installation as local;
use tarn_model::host_binding::{BEAT, NotBound, Place};
use tarn_store::{Database, Store};

use crate::config::{Config, DriverName};
use crate::failure::{Failure, Result, StartFailure, StartResult};

/// The pause after a failure: an engine that could not reach its database must soon know whether it is still its own.
const RETRY_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

/// A database that is bound to this engine.
pub(in crate::serve) struct Bound {
    store: Store,
    place: Place,
}

/// Binds the database to this engine, unless it is bound to another one. Returns `None` where nothing has to be bound:
/// a SQLite file is locked, and the fake driver is made to be shared.
pub(in crate::serve) async fn bind(config: &Config, store: &Store) -> StartResult<Option<Bound>> {
    if matches!(config.database()?, Database::Sqlite(_)) || config.driver == DriverName::Fake {
        return Ok(None);
    }
    let failed = |e| StartFailure::with_cause("cannot determine which host this database belongs to", e);
    // An engine that is refused leaves nothing behind, not even an id.
    let unknown = Place { installation: local_id(&config.data, local::existing_id)?, seat: String::new() };
    if let Err(NotBound::Foreign { installation }) = host_binding::check(store, unknown).await.map_err(failed)? {
        return Err(foreign(config, &installation).into());
    }
    let place = own_place(&config.data)?;
    match host_binding::bind(store, place.clone()).await.map_err(failed)? {
        Ok(()) => Ok(Some(Bound { store: store.clone(), place })),
        Err(NotBound::Foreign { installation }) => Err(foreign(config, &installation).into()),
        Err(NotBound::AliveElsewhere { seconds_ago }) => Err(StartFailure::Temporary(format!(
            "an engine of the same installation used this database {seconds_ago} s ago on another host or in another \
             directory; if that one still runs, stop one of the two"
        ))),
    }
}

/// Says again and again that the engine is alive. Returns only when the database belongs to another engine.
pub(in crate::serve) async fn keep(bound: Option<&Bound>) -> Failure {
    let Some(Bound { store, place }) = bound else { return std::future::pending().await };
    loop {
        let pause = match host_binding::stay_bound(store, place.clone()).await {
            Ok(true) => BEAT,
            Ok(false) => {
                return Failure(
                    "the database was given to another engine (`tarn admin driver adopt`); this one stops, and its \
                     instances keep running without an engine"
                        .to_owned(),
                );
            }
            Err(error) => {
                tracing::debug!(%error, "cannot say that the engine is alive");
                RETRY_PAUSE
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Says that the engine stops.
pub(in crate::serve) async fn release(bound: Option<Bound>) {
    if let Some(Bound { store, place }) = bound
        && let Err(error) = host_binding::say_stopped(&store, place).await
    {
        tracing::warn!(%error, "could not store that the engine stopped; on another host it would start a minute later");
    }
}

/// The place of an engine on this data directory. The directory gets an id if it has none.
pub(crate) fn own_place(data: &Path) -> Result<Place> {
    let installation = local_id(data, |data| local::ensure_id(data).map(Some))?;
    let seat = local::seat(data).map_err(|e| Failure::with_cause("cannot identify the data directory", e))?;
    Ok(Place { installation, seat })
}

fn local_id(data: &Path, find: impl Fn(&Path) -> std::io::Result<Option<String>>) -> Result<String> {
    let found = find(data).map_err(|e| Failure::with_cause("cannot read the id of the installation", e));
    found.map(Option::unwrap_or_default)
}

fn foreign(config: &Config, installation: &str) -> Failure {
    let data = std::path::absolute(&config.data).unwrap_or_else(|_| config.data.clone());
    Failure(format!(
        "this database belongs to installation {installation} of the local driver, whose instances and volumes are on \
         its host; {} is not its data directory. Start the engine on that data directory, which may be moved, or give \
         this engine a database of its own. If that data directory is lost for ever, stop its engine and run `tarn admin \
         driver adopt` (docs/operating/databases.md)",
        data.display()
    ))
}
