//! The part of `tarn admin …` that opens the database itself, for the operator of the host.

use std::path::PathBuf;
use std::sync::Arc;

use tarn_control::host_binding::Found;
use tarn_control::reconcilers::clock;
use tarn_control::{bootstrap, host_binding};
use tarn_model::host_binding::{ALIVE, DriverBinding, NotBound};
use tarn_model::ids::fresh_api_key;
use tarn_store::{Database, Store};

use crate::config::{DataOptions, parse_database};
use crate::data;
use crate::environment::{EngineClock, RandomIds, SystemClock};
use crate::failure::{Failure, Result};
use crate::serve::startup::host_binding::{examine, own_place};

/// Creates a new API key for the administrator. It is valid at once, also while the engine runs.
pub(crate) async fn reset_admin_key(options: &DataOptions) -> Result<()> {
    let dir = options.data.clone().unwrap_or_else(|| PathBuf::from("./tarn-data"));
    let database = parse_database(&dir, options.database.as_deref())?;
    if let Database::Sqlite(path) = &database
        && !path.exists()
    {
        return Err(Failure(format!(
            "there is no database in {}; start `tarn serve` with this data directory first",
            dir.display()
        )));
    }
    let store = Store::open(&database, Arc::new(SystemClock), Arc::new(RandomIds)).await;
    let store = store.map_err(|e| Failure::with_cause("cannot open the database", e))?;
    let api_key = fresh_api_key(&RandomIds);
    data::create_directory(&dir)?;
    let prepared = data::prepare_admin_key(&dir, &api_key)?;
    let reset = bootstrap::reset_admin_key(&store, api_key).await;
    if !reset.map_err(|e| Failure::with_cause("cannot change the key", e))? {
        let _ = std::fs::remove_file(prepared);
        return Err(Failure("there is no administrator yet; start `tarn serve` first".to_owned()));
    }
    data::publish_secret(&prepared, &data::admin_key_path(&dir))?;
    println!(
        "Wrote a new key to {}; all old keys of the administrator are revoked.",
        data::admin_key_path(&dir).display()
    );
    Ok(())
}

/// Gives a PostgreSQL database to the local driver of this data directory.
pub(crate) async fn adopt_database(options: &DataOptions) -> Result<()> {
    let dir = options.data.clone().unwrap_or_else(|| PathBuf::from("./tarn-data"));
    let database = parse_database(&dir, options.database.as_deref())?;
    if matches!(database, Database::Sqlite(_)) {
        return Err(Failure(
            "only a PostgreSQL database belongs to an installation: give its URL with --database; a SQLite database is \
             used by the data directory that it is in"
                .to_owned(),
        ));
    }
    // A refused adoption changes nothing, neither in the database nor in the directory.
    check_adoption(&database).await?;
    let engine_clock = Arc::new(EngineClock::new());
    let store = Store::open(&database, engine_clock.clone(), Arc::new(RandomIds)).await;
    let store = store.map_err(|e| Failure::with_cause("cannot open the database", e))?;
    // The engine that is bound goes by the clock of the database server. By a wrong clock of this host it seems dead.
    let resumed = clock::resume(&store, engine_clock).await;
    resumed.map_err(|e| Failure::with_cause("cannot read the clock of the database server", e))?;
    let failed = |e| Failure::with_cause("cannot bind the database", e);
    data::create_directory(&dir)?;
    // The next engine of this directory must find the id that the database gets.
    let _lock = data::lock_directory(&dir).await?;
    let place = own_place(&dir)?;
    let own = place.installation.clone();
    let earlier = host_binding::adopt(&store, place).await.map_err(failed)?.map_err(cannot_adopt)?;
    let earlier = match earlier {
        Some(DriverBinding::Host(bound)) if bound.place.installation != own => bound.place.installation,
        Some(DriverBinding::Fake) => "the fake driver".to_owned(),
        _ => {
            println!("The database belongs to installation {own} in {}.", dir.display());
            return Ok(());
        }
    };
    println!(
        "The database belongs to installation {own} in {}, and no longer to {earlier}. An engine of {earlier} is refused. \
         The next start here marks clusters and volumes that this host does not have as FAILED.",
        dir.display()
    );
    Ok(())
}

/// Refuses a database that an engine uses, on a connection that changes nothing.
async fn check_adoption(database: &Database) -> Result<()> {
    let Found { bound, users, now } = examine(database).await?;
    match &bound {
        Some(bound @ DriverBinding::Host(_)) => bound.check_replaceable(now).map_err(cannot_adopt),
        // Nothing but its connections shows that such an engine is alive.
        Some(DriverBinding::Fake) | None if !users.is_empty() => Err(Failure(format!(
            "an engine uses this database (connected from {}): stop every engine on it first",
            users.join(", ")
        ))),
        Some(DriverBinding::Fake) | None => Ok(()),
    }
}

fn cannot_adopt(refused: NotBound) -> Failure {
    match refused {
        NotBound::AliveElsewhere { seconds_ago } => Failure(format!(
            "the engine of this database was alive {seconds_ago} s ago: stop it first. If its host has died, wait until it \
             was silent for {} s",
            ALIVE.as_secs()
        )),
        NotBound::Foreign { installation } => Failure(format!("the database belongs to installation {installation}")),
        NotBound::OfFakeDriver => Failure("the database belongs to the fake driver".to_owned()),
    }
}
