//! Observes instances: their records, whether their first process is alive, and which volumes are mounted in them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, openat};
use tarn_model::ids::{InstanceId, VolumeId};

use crate::local::disk;
use crate::local::host::cgroups;
use crate::local::host::mount_tables::{self, Mount};
use crate::local::host::paths::InstallationPaths;
use crate::local::instance::record::Record;
use crate::local::local_host::{LocalHost, failed};
use crate::{End, Error, Observed, ObservedInstance};

/// Observes one instance.
pub(in crate::local) fn observe_instance(host: &LocalHost, id: &InstanceId) -> Result<Option<ObservedInstance>, Error> {
    host.record(id).map(|record| observe_record(host, &record)).transpose()
}

/// Observes all instances.
pub(in crate::local) fn observe_instances(host: &LocalHost) -> Result<Observed, Error> {
    let records: Vec<Record> = host.records().values().cloned().collect();
    let mut observed = Observed::default();
    for record in records {
        let seen = observe_record(host, &record)?;
        observed.instances.insert(record.id, seen);
    }
    Ok(observed)
}

/// Observes the instance of a record.
pub(in crate::local) fn observe_record(host: &LocalHost, record: &Record) -> Result<ObservedInstance, Error> {
    observe_from_paths(&host.paths, record)
}

/// Observes the instance of a record without an open driver.
pub(in crate::local) fn observe_from_paths(
    paths: &InstallationPaths,
    record: &Record,
) -> Result<ObservedInstance, Error> {
    let what = "the instance could not be observed";
    let volumes = mounted_volumes(record).map_err(|error| failed(what, &error))?;
    let end = if volumes.is_some() { None } else { end_reason(paths, record).map_err(|error| failed(what, &error))? };
    Ok(ObservedInstance {
        cluster: record.cluster.clone(),
        running: volumes.is_some(),
        boot: record.boot,
        private_ip: record.address.to_string(),
        volumes: volumes.unwrap_or_default().into_iter().collect(),
        end,
    })
}

/// The volumes that are mounted in an instance; `None` when it does not run.
fn mounted_volumes(record: &Record) -> io::Result<Option<BTreeSet<VolumeId>>> {
    let Some(process) = &record.process else { return Ok(None) };
    let table = mount_tables::mounts_of(process)?;
    Ok(table.map(|table| table.iter().filter_map(Mount::volume).collect()))
}

/// Returns whether the first process of an instance is alive.
pub(in crate::local) fn is_alive(record: &Record) -> io::Result<bool> {
    record.process.as_ref().map_or(Ok(false), |process| process.alive())
}

/// Why an instance does not run; `None` when it never started.
fn end_reason(paths: &InstallationPaths, record: &Record) -> io::Result<Option<End>> {
    let Some(process) = &record.process else { return Ok(None) };
    if !process.is_of_this_boot()? {
        let is_whole = disk::disk_exists(paths, &record.id)?;
        return Ok(Some(if is_whole { End::MachineRebooted } else { End::DiskMissing }));
    }
    // The exit marker comes first: the kernel may have killed some other process of the instance long before.
    if is_exit_marked(&paths.run_directory(&record.id)) {
        return Ok(Some(End::Exit));
    }
    let out_of_memory = cgroups::count_memory_kills(&paths.instance_cgroup(&record.id))? > 0;
    Ok(Some(if out_of_memory { End::OutOfMemory } else { End::Lost }))
}

const NAME: &str = "ended";

/// The mode that marks an orderly exit.
const EXITED_MODE: u32 = 0o400;

/// Creates the marker by which a guest records that it exited by itself, as opposed to being killed, in the run
/// directory of an instance, and returns a handle to it.
///
/// No process waits for the guest, and a file that it writes to could be used to fill the host's disk. So the guest
/// inherits, as descriptor 4, a handle to a named pipe that belongs to the instance's `root`. Before an orderly exit it
/// removes its own write permission: `chmod 0400` on `/proc/self/fd/4`. A mode takes no disk space. `root` in the
/// instance can set the marker too early; then a kill looks like an orderly exit, which affects no other tenant.
pub(in crate::local) fn create_exit_marker(run: &Path, owner: u32) -> io::Result<OwnedFd> {
    let path = run.join(NAME);
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    chown(&path, Some(owner), Some(owner))?;
    Ok(openat(CWD, &path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// Returns whether the guest marked an orderly exit.
pub(in crate::local) fn is_exit_marked(run: &Path) -> bool {
    fs::symlink_metadata(run.join(NAME)).is_ok_and(|found| found.mode() & 0o777 == EXITED_MODE)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The marker is set through the inherited handle.
    #[test]
    fn exit_is_marked_through_handle() {
        let run = tempfile::tempdir().unwrap();
        let own = rustix::process::getuid().as_raw();
        let handle = create_exit_marker(run.path(), own).unwrap();
        assert!(!is_exit_marked(run.path()));
        let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
        fs::set_permissions(path, fs::Permissions::from_mode(EXITED_MODE)).unwrap();
        assert!(is_exit_marked(run.path()));
    }
}
