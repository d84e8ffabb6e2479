//! Removing an instance with all that was made for it, and with the last one every trace of the installation.

use std::fs;
use std::io;

use tarn_model::ids::InstanceId;

use super::local_host::{LocalHost, blocking, failed};
use super::record::Record;
use super::{cgroups, disks, ensure, files, trees};
use crate::Error;

/// Removes the instance; what is not there is removed already.
pub(super) async fn remove(host: &LocalHost, id: &InstanceId) -> Result<(), Error> {
    let _one_at_a_time = host.lock(id).await;
    take_apart(host, id).await
}

/// Removes the instance while the caller holds its lock. The record goes last: until then everything can be found again.
pub(super) async fn take_apart(host: &LocalHost, id: &InstanceId) -> Result<(), Error> {
    let Some(record) = host.record(id) else { return Ok(()) };
    ensure::clear(host, id).await?;
    host.network.detach(record.slot, record.address).await?;
    let directory = host.places.instance(id);
    disks::remove(host, id).await?;
    let _gate = host.gate.lock().await;
    if !host.records().values().any(|other| other.id != *id && other.slot == record.slot) {
        host.network.remove_bridge(record.slot).await?;
    }
    if !host.records().keys().any(|other| other != id) {
        leave_machine(host).await?;
    }
    blocking("the record of an instance could not be removed", move || {
        Record::remove(&directory)?;
        trees::remove(&directory)?;
        directory.parent().map_or(Ok(()), files::sync_directory)
    })
    .await?;
    host.records().remove(id);
    Ok(())
}

/// Removes what all instances shared. With none left, nothing of this installation remains outside of its data directory.
pub(super) async fn leave_machine(host: &LocalHost) -> Result<(), Error> {
    let what = "what the instances shared could not be removed";
    host.network.remove_base().await?;
    cgroups::remove(&host.places.cgroups()).await.map_err(|error| failed(what, &error))?;
    let (own, shared) = (host.places.running(), host.places.run.clone());
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
