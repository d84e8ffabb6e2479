//! The part of `tarn admin …` that opens the database itself, for the operator of the host.

use std::path::PathBuf;
use std::sync::Arc;

use tarn_control::bootstrap;
use tarn_model::ids::fresh_api_key;
use tarn_store::{Database, Store};

use crate::config::{DataOptions, parse_database};
use crate::data;
use crate::environment::{RandomIds, SystemClock};
use crate::failure::{Failure, Result};

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
