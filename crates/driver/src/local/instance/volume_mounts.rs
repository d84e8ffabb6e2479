//! Mounts volumes in running instances, lists their users, and unmounts them.
//!
//! Mounts are not recorded: a volume is mounted if the kernel says so, and an instance that has ended has no mounts.

use std::time::Duration;

use tarn_model::ids::{InstanceId, VolumeId};

use crate::local::host::mount_tables::{self, Mount};
use crate::local::host::processes::Process;
use crate::local::local_host::{LocalHost, failed};
use crate::local::{helper_process, volume_users, volumes};
use crate::{Error, VolumeUser, format_short_list};

const FAILED: &str = "the mounts of the instance could not be observed";

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
        return Err(Error::Permanent(format!("{instance} is not running")));
    };
    let _permit = host.helper_permits.acquire().await.map_err(|_| Error::Retry("the engine is stopping".into()))?;
    helper_process::mount_volumes(host, &process, record.id_base, &[(volume.clone(), device)]).await
}

/// Unmounts the volume from a running instance, unless processes use it there.
pub(in crate::local) async fn unmount_volume(
    host: &LocalHost,
    volume: &VolumeId,
    instance: &InstanceId,
) -> Result<(), Error> {
    let _one_at_a_time = host.lock(instance).await;
    let Some(mounted) = find_mounted_volume(host, volume, instance)? else { return Ok(()) };
    // This takes no helper permit: it mostly waits for the disk, as long as data is left to write, and starts must not
    // wait for it. There is at most one at a time per instance.
    if helper_process::unmount_from_instance(host, &mounted.process, volume, mounted.device_number).await? {
        return Ok(());
    }
    let volume_users = volume_users::find_users(mounted.in_instance(host, instance)).await?;
    Err(Error::Permanent(in_use_message(volume, &volume_users)))
}

/// The processes that use the volume in an instance.
pub(in crate::local) async fn list_volume_users(
    host: &LocalHost,
    volume: &VolumeId,
    instance: &InstanceId,
) -> Result<Vec<VolumeUser>, Error> {
    match find_mounted_volume(host, volume, instance)? {
        Some(mounted) => volume_users::find_users(mounted.in_instance(host, instance)).await,
        None => Ok(Vec::new()),
    }
}

/// Ends the processes that use the volume in an instance, and returns those that had to be killed.
pub(in crate::local) async fn end_volume_users(
    host: &LocalHost,
    volume: &VolumeId,
    instance: &InstanceId,
    grace: Duration,
) -> Result<Vec<VolumeUser>, Error> {
    match find_mounted_volume(host, volume, instance)? {
        Some(mounted) => volume_users::end_users(mounted.in_instance(host, instance), grace).await,
        None => Ok(Vec::new()),
    }
}

/// A volume that is mounted in a running instance.
struct MountedVolume {
    process: Process,
    device_number: u64,
}

impl MountedVolume {
    fn in_instance(self, host: &LocalHost, instance: &InstanceId) -> volume_users::InstanceVolume {
        volume_users::InstanceVolume {
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

/// The first process of a running instance, and the mounts of that instance.
fn running_process(host: &LocalHost, instance: &InstanceId) -> Result<Option<(Process, Vec<Mount>)>, Error> {
    let Some(process) = host.record(instance).and_then(|record| record.process) else { return Ok(None) };
    let table = mount_tables::mounts_of(&process).map_err(|error| failed(FAILED, &error))?;
    Ok(table.map(|table| (process, table)))
}

fn in_use_message(volume: &VolumeId, volume_users: &[VolumeUser]) -> String {
    match volume_users {
        [] => format!("{volume} is in use in the instance; try again, or restart the instance"),
        volume_users => format!("{volume} is in use by {}", format_short_list(volume_users)),
    }
}
