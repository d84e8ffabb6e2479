//! `tarn admin …`: what is done at the database itself, for whoever owns the machine.

use std::path::PathBuf;
use std::sync::Arc;

use tarn_control::bootstrap;
use tarn_model::ids::fresh_api_key;
use tarn_store::{Database, Store};

use crate::config::{DataOptions, database};
use crate::data;
use crate::environment::{RandomIds, SystemClock};
use crate::failure::{Failure, Result};

/// Makes a new key for the administrator. It works at once, also while the cloud runs.
pub(crate) async fn reset_key(options: &DataOptions) -> Result<()> {
    let dir = options.data.clone().unwrap_or_else(|| PathBuf::from("./tarn-data"));
    let database = database(&dir, options.database.as_deref())?;
    if let Database::Sqlite(path) = &database
        && !path.exists()
    {
        return Err(Failure(format!("there is no database in {}; start `tarn serve` there first", dir.display())));
    }
    let store = Store::open(&database, Arc::new(SystemClock), Arc::new(RandomIds)).await;
    let store = store.map_err(|e| Failure::doing("cannot open the database", e))?;
    let api_key = fresh_api_key(&RandomIds);
    data::make(&dir)?;
    let prepared = data::prepare_key(&dir, &api_key)?;
    let reset = bootstrap::reset_admin_key(&store, api_key).await;
    if !reset.map_err(|e| Failure::doing("the key could not be changed", e))? {
        let _ = std::fs::remove_file(prepared);
        return Err(Failure("there is no administrator yet; start `tarn serve` first".to_owned()));
    }
    data::publish(&prepared, &data::key_path(&dir))?;
    println!("A new key is in {}; all old keys of the administrator have ended.", data::key_path(&dir).display());
    Ok(())
}
