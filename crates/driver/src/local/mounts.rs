//! Volumes in running instances: mounted, asked for, unmounted.
//!
//! Nothing is on record: what is mounted is what the kernel shows in the instance, and an instance that has ended has nothing.

use std::time::Duration;

use tarn_model::ids::{InstanceId, VolumeId};

use super::local_host::{LocalHost, failed};
use super::mount_tables::{self, Mount};
use super::processes::Process;
use super::{errands, holders, volumes};
use crate::{Error, Holder, format_short_list};

const FAILED: &str = "the mounts of an instance could not be looked at";

/// Mounts the volume in a running instance.
pub(super) async fn ensure(host: &LocalHost, volume: &VolumeId, instance: &InstanceId) -> Result<(), Error> {
    let _one_at_a_time = host.lock(instance).await;
    let device = volumes::open(host, volume).await?;
    let Some(record) = host.record(instance) else {
        return Err(Error::Permanent(format!("there is no instance {instance}")));
    };
    let Some((process, _)) = running(host, instance)? else {
        return Err(Error::Permanent(format!("{instance} does not run")));
    };
    let _turn = host.helpers.acquire().await.map_err(|_| Error::Retry("the engine is stopping".into()))?;
    errands::mount(host, &process, record.id_base, &[(volume.clone(), device)]).await
}

/// Unmounts the volume from a running instance, unless processes use it there.
pub(super) async fn remove(host: &LocalHost, volume: &VolumeId, instance: &InstanceId) -> Result<(), Error> {
    let _one_at_a_time = host.lock(instance).await;
    let Some(mounted) = find(host, volume, instance)? else { return Ok(()) };
    // This takes nobody's turn: it mostly waits for the disk, for as long as much was written, and starts must not wait with
    // it. There is one at a time for each instance.
    if errands::unmount(host, &mounted.process, volume, mounted.number).await? {
        return Ok(());
    }
    let holders = holders::find(mounted.place(host, instance)).await?;
    Err(Error::Permanent(in_use(volume, &holders)))
}

/// The processes that use the volume in an instance.
pub(super) async fn held(host: &LocalHost, volume: &VolumeId, instance: &InstanceId) -> Result<Vec<Holder>, Error> {
    match find(host, volume, instance)? {
        Some(mounted) => holders::find(mounted.place(host, instance)).await,
        None => Ok(Vec::new()),
    }
}

/// Ends the processes that use the volume in an instance, and returns those that had to be killed.
pub(super) async fn free(
    host: &LocalHost,
    volume: &VolumeId,
    instance: &InstanceId,
    grace: Duration,
) -> Result<Vec<Holder>, Error> {
    match find(host, volume, instance)? {
        Some(mounted) => holders::end(mounted.place(host, instance), grace).await,
        None => Ok(Vec::new()),
    }
}

/// A volume that is mounted in an instance that runs.
struct Mounted {
    process: Process,
    number: u64,
}

impl Mounted {
    fn place(self, host: &LocalHost, instance: &InstanceId) -> holders::Place {
        holders::Place { group: host.places.cgroup(instance), first: self.process, device: self.number }
    }
}

fn find(host: &LocalHost, volume: &VolumeId, instance: &InstanceId) -> Result<Option<Mounted>, Error> {
    let Some((process, table)) = running(host, instance)? else { return Ok(None) };
    let mount = table.iter().find(|mount| mount.volume().as_ref() == Some(volume));
    Ok(mount.map(|mount| Mounted { process, number: mount.device }))
}

/// The first process of an instance that runs, and what is mounted there.
fn running(host: &LocalHost, instance: &InstanceId) -> Result<Option<(Process, Vec<Mount>)>, Error> {
    let Some(process) = host.record(instance).and_then(|record| record.process) else { return Ok(None) };
    let table = mount_tables::of(&process).map_err(|error| failed(FAILED, &error))?;
    Ok(table.map(|table| (process, table)))
}

fn in_use(volume: &VolumeId, holders: &[Holder]) -> String {
    match holders {
        [] => format!("{volume} is in use in the instance; try again, or restart the instance"),
        holders => format!("{volume} is in use by {}", format_short_list(holders)),
    }
}
