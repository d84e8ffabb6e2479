//! Removing an instance with all that was made for it, and with the last one every trace of the installation.

use std::fs;
use std::io;

use tarn_model::ids::InstanceId;

use super::engine::{Engine, blocking, failed};
use super::record::Record;
use super::{cgroups, disks, ensure, files, trees};
use crate::Error;

/// Removes the instance; what is not there is removed already.
pub(super) async fn remove(engine: &Engine, id: &InstanceId) -> Result<(), Error> {
    let _one_at_a_time = engine.lock(id).await;
    take_apart(engine, id).await
}

/// Removes the instance while the caller holds its lock. The record goes last: until then everything can be found again.
pub(super) async fn take_apart(engine: &Engine, id: &InstanceId) -> Result<(), Error> {
    let Some(record) = engine.record(id) else { return Ok(()) };
    ensure::clear(engine, id).await?;
    engine.network.detach(record.slot, record.address).await?;
    let directory = engine.places.instance(id);
    disks::remove(engine, id).await?;
    let _gate = engine.gate.lock().await;
    if !engine.records().values().any(|other| other.id != *id && other.slot == record.slot) {
        engine.network.remove_bridge(record.slot).await?;
    }
    if !engine.records().keys().any(|other| other != id) {
        leave_machine(engine).await?;
    }
    blocking("the record of an instance could not be removed", move || {
        Record::remove(&directory)?;
        trees::remove(&directory)?;
        directory.parent().map_or(Ok(()), files::sync_directory)
    })
    .await?;
    engine.records().remove(id);
    Ok(())
}

/// Removes what all instances shared. With none left, nothing of this installation remains outside of its data directory.
pub(super) async fn leave_machine(engine: &Engine) -> Result<(), Error> {
    let what = "what the instances shared could not be removed";
    engine.network.remove_base().await?;
    cgroups::remove(&engine.places.cgroups()).await.map_err(|error| failed(what, &error))?;
    let (own, shared) = (engine.places.running(), engine.places.run.clone());
    blocking(what, move || {
        files::gone(fs::remove_dir(own))?;
        // Other engines on this machine may have instances there.
        match files::gone(fs::remove_dir(shared)) {
            Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::ResourceBusy) => {
                Ok(())
            }
            other => other,
        }
    })
    .await
}
