//! Removes an instance with everything that belongs to it, and with the last instance every trace of the installation.

use std::fs;
use std::io;

use tarn_model::ids::InstanceId;

use crate::Error;
use crate::local::disk;
use crate::local::host::{cgroups, files};
use crate::local::instance::ensure;
use crate::local::instance::record::Record;
use crate::local::local_host::{LocalHost, blocking, failed};

/// Removes the instance; succeeds when it does not exist.
pub(in crate::local) async fn remove_instance(host: &LocalHost, id: &InstanceId) -> Result<(), Error> {
    let _one_at_a_time = host.lock(id).await;
    remove_locked(host, id).await
}

/// Removes the instance while the caller holds its lock. The record is removed last: until then everything can be found
/// again.
pub(in crate::local) async fn remove_locked(host: &LocalHost, id: &InstanceId) -> Result<(), Error> {
    let Some(record) = host.record(id) else { return Ok(()) };
    ensure::clear_previous_start(host, id).await?;
    host.network.detach(record.slot, record.address).await?;
    let directory = host.paths.instance_directory(id);
    disk::remove_disk(host, id).await?;
    let _guard = host.shared_resources.lock().await;
    if !host.records().values().any(|other| other.id != *id && other.slot == record.slot) {
        host.network.remove_bridge(record.slot).await?;
    }
    if !host.records().keys().any(|other| other != id) {
        remove_shared_resources(host).await?;
    }
    blocking("the record of the instance could not be removed", move || {
        Record::remove(&directory)?;
        files::remove_tree(&directory)?;
        tarn_base::files::sync_parent(&directory)
    })
    .await?;
    host.records().remove(id);
    Ok(())
}

/// Removes what all instances share. Without instances, nothing of this installation remains outside its data
/// directory.
pub(in crate::local) async fn remove_shared_resources(host: &LocalHost) -> Result<(), Error> {
    let what = "the resources that instances share could not be removed";
    host.network.remove_base().await?;
    cgroups::remove_cgroup(&host.paths.cgroups()).await.map_err(|error| failed(what, &error))?;
    let (own, shared) = (host.paths.running(), host.paths.run.clone());
    blocking(what, move || {
        files::ignore_missing(fs::remove_dir(own))?;
        // Other engines on this host may have instances there.
        match files::ignore_missing(fs::remove_dir(shared)) {
            Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::ResourceBusy) => {
                Ok(())
            }
            other => other,
        }
    })
    .await
}
