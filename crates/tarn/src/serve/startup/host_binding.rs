//! Binds a database that several engines can open to the driver of this one.

use std::path::Path;
use std::sync::Arc;

use tarn_control::host_binding::{self, Found};
use tarn_driver::local::installation as local;
use tarn_model::host_binding::{BEAT, Claimant, DriverBinding, NotBound, Place};
use tarn_store::{Database, Store};

use crate::config::{Config, DriverName};
use crate::environment::{RandomIds, SystemClock};
use crate::failure::{Failure, Result, StartFailure, StartResult};

/// The pause after a failure: an engine that could not reach its database must soon know whether it is still its own.
const RETRY_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

/// A database that is bound to the driver of this engine.
pub(in crate::serve) struct Bound {
    store: Store,
    claimant: Claimant,
}

/// Refuses a database that this engine may not use. Nothing in it is changed: to open it for writing would bring it to
/// the schema of this program, under an older engine that uses it.
pub(in crate::serve) async fn check(config: &Config) -> StartResult<()> {
    let database = config.database()?;
    if matches!(database, Database::Sqlite(_)) {
        return Ok(());
    }
    let Found { bound, users, now } = examine(&database).await?;
    let claimant = match config.driver {
        DriverName::Fake => Claimant::Fake,
        // An engine that is refused leaves nothing behind, not even an id.
        DriverName::Local => {
            Claimant::Host(place(&config.data, local::existing_id(&config.data).map(Option::unwrap_or_default))?)
        }
    };
    DriverBinding::admit(bound.as_ref(), &claimant, now).map_err(|refused| refusal(config, &refused))?;
    if bound.is_none() && config.driver == DriverName::Local && !users.is_empty() {
        // A program that binds nothing, or an engine that starts at this moment.
        return Err(StartFailure::Temporary(format!(
            "another engine uses this database (connected from {}), and it is not bound to a driver yet; if that engine \
             has the fake driver or another data directory, give this one a database of its own",
            users.join(", ")
        )));
    }
    Ok(())
}

/// Reads what is known of a database on a server, without changing it.
pub(crate) async fn examine(database: &Database) -> StartResult<Found> {
    let store = Store::open_read_only(database, false, Arc::new(SystemClock), Arc::new(RandomIds)).await;
    let store = store.map_err(|e| StartFailure::with_cause("cannot open the database", e))?;
    let found = host_binding::find(&store).await;
    found.map_err(|e| StartFailure::with_cause("cannot determine which driver this database belongs to", e))
}

/// Binds the database to this engine, unless it is bound to another one since [`check`]. Returns `None` on SQLite,
/// whose file is locked.
pub(in crate::serve) async fn bind(config: &Config, store: &Store) -> StartResult<Option<Bound>> {
    if matches!(config.database()?, Database::Sqlite(_)) {
        return Ok(None);
    }
    let claimant = match config.driver {
        DriverName::Fake => Claimant::Fake,
        DriverName::Local => Claimant::Host(own_place(&config.data)?),
    };
    let failed = |e| StartFailure::with_cause("cannot determine which driver this database belongs to", e);
    let bound = host_binding::bind(store, claimant.clone()).await.map_err(failed)?;
    bound.map_err(|refused| refusal(config, &refused))?;
    Ok(Some(Bound { store: store.clone(), claimant }))
}

/// Says again and again that the engine is alive. Returns only when the database belongs to another engine.
pub(in crate::serve) async fn keep(bound: Option<&Bound>) -> Failure {
    let Some(Bound { store, claimant }) = bound else { return std::future::pending().await };
    loop {
        let pause = match host_binding::stay_bound(store, claimant.clone()).await {
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
    if let Some(Bound { store, claimant: Claimant::Host(place) }) = bound
        && let Err(error) = host_binding::say_stopped(&store, place).await
    {
        tracing::warn!(%error, "could not store that the engine stopped; on another host it would start a minute later");
    }
}

/// The place of an engine on this data directory. The directory gets an id if it has none.
pub(crate) fn own_place(data: &Path) -> Result<Place> {
    place(data, local::ensure_id(data))
}

fn place(data: &Path, installation: std::io::Result<String>) -> Result<Place> {
    let installation = installation.map_err(|e| Failure::with_cause("cannot read the id of the installation", e))?;
    let seat = local::seat(data).map_err(|e| Failure::with_cause("cannot identify the data directory", e))?;
    Ok(Place { installation, seat })
}

fn refusal(config: &Config, refused: &NotBound) -> StartFailure {
    let data = std::path::absolute(&config.data).unwrap_or_else(|_| config.data.clone());
    let shown = data.display();
    let text = match refused {
        NotBound::Foreign { installation } if config.driver == DriverName::Fake => format!(
            "this database belongs to installation {installation} of the local driver, whose instances and volumes are \
             real, and the fake driver would take all of them for lost. Give this engine a database of its own, or start \
             it with the local driver on the data directory of that installation (docs/operating/databases.md)"
        ),
        NotBound::Foreign { installation } => format!(
            "this database belongs to installation {installation} of the local driver, whose instances and volumes are \
             on its host; {shown} is not its data directory. Start the engine on that data directory, which may be moved, \
             or give this engine a database of its own. If that data directory is lost for ever, stop its engine and run \
             `tarn admin driver adopt` (docs/operating/databases.md)"
        ),
        NotBound::OfFakeDriver => {
            "this database belongs to the fake driver, whose clusters and volumes do not exist. Give \
             this engine a database of its own; or stop every engine with the fake driver and run `tarn admin driver \
             adopt`, after which they are FAILED (docs/operating/databases.md)"
                .to_owned()
        }
        NotBound::AliveElsewhere { seconds_ago } => {
            return StartFailure::Temporary(format!(
                "an engine of the same installation used this database {seconds_ago} s ago on another host or in another \
                 directory; if that one still runs, stop one of the two"
            ));
        }
    };
    StartFailure::Final(Failure(text))
}
