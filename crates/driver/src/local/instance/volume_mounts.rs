//! Volumes in running instances: mounted, asked for, unmounted.
//!
//! Nothing is on record: what is mounted is what the kernel shows in the instance, and an instance that has ended has nothing.

use std::time::Duration;

use tarn_model::ids::{InstanceId, VolumeId};

use crate::local::host::mount_tables::{self, Mount};
use crate::local::host::processes::Process;
use crate::local::local_host::{LocalHost, failed};
use crate::local::{helper_calls, volume_users, volumes};
use crate::{Error, Holder, listed};

const FAILED: &str = "the mounts of an instance could not be looked at";

/// Mounts the volume in a running instance.
pub(in crate::local) async fn mount_volume(
    host: &LocalHost,
    volume: &VolumeId,
    instance: &InstanceId,
) -> Result<(), Error> {
    let _one_at_a_time = host.lock(instance).await;
    let device = volumes::open_volume(host, volume).await?;
    let Some(record) = host.record(instance) else {
        return Err(Error::Permanent(format!("there is no instance {instance}")));
    };
    let Some((process, _)) = running_process(host, instance)? else {
        return Err(Error::Permanent(format!("{instance} does not run")));
    };
    let _permit = host.helper_permits.acquire().await.map_err(|_| Error::Retry("the engine is stopping".into()))?;
    helper_calls::mount_volumes(host, &process, record.id_base, &[(volume.clone(), device)]).await
}

/// Unmounts the volume from a running instance, unless processes use it there.
pub(in crate::local) async fn unmount_volume(
    host: &LocalHost,
    volume: &VolumeId,
    instance: &InstanceId,
) -> Result<(), Error> {
    let _one_at_a_time = host.lock(instance).await;
    let Some(mounted) = find_mounted_volume(host, volume, instance)? else { return Ok(()) };
    // This takes nobody's turn: it mostly waits for the disk, for as long as much was written, and starts must not wait with
    // it. There is one at a time for each instance.
    if helper_calls::unmount_from_instance(host, &mounted.process, volume, mounted.device_number).await? {
        return Ok(());
    }
    let holders = volume_users::find_users(mounted.volume_use(host, instance)).await?;
    Err(Error::Permanent(in_use_message(volume, &holders)))
}

/// The processes that use the volume in an instance.
pub(in crate::local) async fn list_volume_users(
    host: &LocalHost,
    volume: &VolumeId,
    instance: &InstanceId,
) -> Result<Vec<Holder>, Error> {
    match find_mounted_volume(host, volume, instance)? {
        Some(mounted) => volume_users::find_users(mounted.volume_use(host, instance)).await,
        None => Ok(Vec::new()),
    }
}

/// Ends the processes that use the volume in an instance, and returns those that had to be killed.
pub(in crate::local) async fn end_volume_users(
    host: &LocalHost,
    volume: &VolumeId,
    instance: &InstanceId,
    grace: Duration,
) -> Result<Vec<Holder>, Error> {
    match find_mounted_volume(host, volume, instance)? {
        Some(mounted) => volume_users::end_users(mounted.volume_use(host, instance), grace).await,
        None => Ok(Vec::new()),
    }
}

/// A volume that is mounted in an instance that runs.
struct MountedVolume {
    process: Process,
    device_number: u64,
}

impl MountedVolume {
    fn volume_use(self, host: &LocalHost, instance: &InstanceId) -> volume_users::VolumeUse {
        volume_users::VolumeUse {
            cgroup: host.paths.instance_cgroup(instance),
            init: self.process,
            device: self.device_number,
        }
    }
}

fn find_mounted_volume(
    host: &LocalHost,
    volume: &VolumeId,
    instance: &InstanceId,
) -> Result<Option<MountedVolume>, Error> {
    let Some((process, table)) = running_process(host, instance)? else { return Ok(None) };
    let mount = table.iter().find(|mount| mount.volume().as_ref() == Some(volume));
    Ok(mount.map(|mount| MountedVolume { process, device_number: mount.device }))
}

/// The first process of an instance that runs, and what is mounted there.
fn running_process(host: &LocalHost, instance: &InstanceId) -> Result<Option<(Process, Vec<Mount>)>, Error> {
    let Some(process) = host.record(instance).and_then(|record| record.process) else { return Ok(None) };
    let table = mount_tables::mounts_of(&process).map_err(|error| failed(FAILED, &error))?;
    Ok(table.map(|table| (process, table)))
}

fn in_use_message(volume: &VolumeId, holders: &[Holder]) -> String {
    match holders {
        [] => format!("{volume} is in use in the instance; try again, or restart the instance"),
        holders => format!("{volume} is in use by {}", listed(holders)),
    }
}
