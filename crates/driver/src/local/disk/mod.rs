//! The disks of instances: what an instance writes lies on a filesystem of its own, in a sparse file, so that it can
//! fill its own disk and no other.
//!
//! The filesystem is created once, as a `template`, and copied for every instance, which takes a millisecond. The
//! helper mounts it, only in the mount namespace of the instance, on a loop device that disappears with its last user.
//! An instance from before such disks keeps its directory.
//!
//! Start reading at [`ensure_disk`], then [`open_disk`] and [`remove_disk`].

pub(super) mod content;
mod template;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::statvfs;
use tarn_model::ids::InstanceId;

use crate::Error;
use crate::local::host::files;
use crate::local::host::loop_device::{self, LoopDevice};
use crate::local::host::paths::InstallationPaths;
use crate::local::instance::record::Record;
use crate::local::local_host::{LocalHost, blocking, failed};
use crate::local::protections::{Protection, Protections};
use crate::local::volumes::Volumes;

/// The default size of a disk, unless half of the host's disk is less: one instance alone must not be able to fill it.
const DEFAULT_BYTES: u64 = 64_000_000_000;

/// The smallest XFS that `mkfs.xfs` creates.
const MIN_BYTES: u64 = 300 << 20;

/// Sizes are whole MiB.
const SIZE_UNIT: u64 = 1 << 20;

/// A disk is created only while this fraction of the host's disk (one part in so many) or this many bytes are free.
const RESERVE: (u64, u64) = (20, 1 << 30);

/// The delay between two attempts.
const PAUSE: Duration = Duration::from_millis(1);

/// How often to check whether a device has disappeared or appeared.
const MAX_ATTEMPTS: u32 = 20_000;

const FAILED: &str = "the disk of the instance could not be created";

/// The source of the disks of new instances.
pub(super) struct DiskSource {
    /// The filesystem that is copied; without one, disks are directories without a size limit.
    template: Option<PathBuf>,
}

/// The disk of an instance in the data directory.
#[derive(Clone, Debug)]
pub(super) enum Disk {
    Directory(PathBuf),
    /// A file with a filesystem; `new` when no process can have opened it yet.
    File {
        path: PathBuf,
        new: bool,
    },
}

/// A disk that can be mounted now.
pub(super) enum OpenDisk {
    Directory(PathBuf),
    /// A device, which stays attached while this value lives.
    Device(LoopDevice),
}

impl DiskSource {
    /// Creates the template unless it exists.
    pub(super) async fn open(
        paths: &InstallationPaths,
        volumes: &Volumes,
        size_bytes: Option<u64>,
        protections: &Protections,
    ) -> Result<Self, Error> {
        if !protections.have(Protection::DiskLimit) {
            return Ok(DiskSource { template: None });
        }
        let Ok(mkfs) = volumes.mkfs() else {
            tracing::warn!("the disks of new instances have no size limit: this host lacks what volumes need, too");
            return Ok(DiskSource { template: None });
        };
        let disk = statvfs(&paths.data).map_err(|error| failed(FAILED, &error.into()))?;
        let half = disk.f_blocks.saturating_mul(disk.f_frsize) / 2;
        let size_bytes = size_bytes.unwrap_or(DEFAULT_BYTES.min(half)) / SIZE_UNIT * SIZE_UNIT;
        let template = template::ensure_template(&paths.disk_templates(), &mkfs, size_bytes.max(MIN_BYTES)).await?;
        Ok(DiskSource { template: Some(template) })
    }
}

/// Returns whether an instance has its disk.
pub(super) fn disk_exists(paths: &InstallationPaths, id: &InstanceId) -> io::Result<bool> {
    Ok(paths.disk_directory(id).try_exists()? || paths.disk_file(id).try_exists()?)
}

/// Refuses to start an instance that has lost its disk: a new empty disk would look like its own.
pub(super) fn check_disk_exists(host: &LocalHost, record: &Record) -> Result<(), Error> {
    let had_one = record.had_disk || record.process.is_some() || record.boot > 1;
    match disk_exists(&host.paths, &record.id) {
        Ok(false) if had_one => Err(Error::Permanent(
            "the disk of the instance is not where it was kept; ask the operator to restore it, or destroy the cluster"
                .into(),
        )),
        Ok(_) => Ok(()),
        Err(error) => Err(failed("the disk of the instance could not be inspected", &error)),
    }
}

/// Returns the disk of an instance and creates it if there is none. [`check_disk_exists`] has ruled out that it was
/// lost.
pub(super) async fn ensure_disk(host: &LocalHost, record: &Record) -> Result<Disk, Error> {
    let (paths, record, template) = (host.paths.clone(), record.clone(), host.disks.template.clone());
    blocking(FAILED, move || {
        let (directory, path) = (paths.disk_directory(&record.id), paths.disk_file(&record.id));
        if directory.exists() {
            return Ok(Disk::Directory(directory));
        }
        if path.exists() {
            return Ok(Disk::File { path, new: false });
        }
        check_free_space(&paths.data)?;
        match template {
            Some(template) => {
                template::copy_template(&template, &path)?;
                Ok(Disk::File { path, new: true })
            }
            None => {
                content::create_directory_disk(&directory, &record)?;
                Ok(Disk::Directory(directory))
            }
        }
    })
    .await
}

/// Opens a disk. A disk in a file never gets two devices: they would be two filesystems on the same blocks.
pub(super) async fn open_disk(disk: &Disk) -> Result<OpenDisk, Error> {
    let (path, new) = match disk.clone() {
        Disk::Directory(path) => return Ok(OpenDisk::Directory(path)),
        Disk::File { path, new } => (path, new),
    };
    for _ in 0..MAX_ATTEMPTS {
        let path = path.clone();
        let found = move || if new { loop_device::attach_new_file(&path) } else { loop_device::find_or_attach(&path) };
        if let Some(device) = blocking("the disk of the instance could not be opened", found).await? {
            return Ok(OpenDisk::Device(device));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(Error::Retry("the disk of the instance could not be opened: its device is busy".into()))
}

/// Syncs the content of a new disk, which costs nothing while the helper still builds the instance.
pub(super) async fn sync_new_disk(disk: &Disk) -> Result<(), Error> {
    let Disk::File { path, new: true } = disk.clone() else { return Ok(()) };
    blocking(FAILED, move || std::fs::File::open(path)?.sync_data()).await
}

/// Removes the disk of an instance that has no processes left, once the kernel has released its mount.
pub(super) async fn remove_disk(host: &LocalHost, id: &InstanceId) -> Result<(), Error> {
    let (directory, file) = (host.paths.disk_directory(id), host.paths.disk_file(id));
    wait_until_released(&host.paths.instance_directory(id)).await?;
    blocking("the disk of the instance could not be removed", move || {
        files::remove_tree(&directory)?;
        files::remove_tree(&file)
    })
    .await
}

/// Waits until no loop device uses a file that is, or was, in this directory.
pub(super) async fn wait_until_released(directory: &Path) -> Result<(), Error> {
    let what = "the disk of the instance could not be inspected";
    for _ in 0..MAX_ATTEMPTS {
        let own = directory.to_owned();
        if !blocking(what, move || loop_device::has_device_below(&own)).await? {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    let directory = directory.display();
    tracing::warn!(%directory, "a process on the host still uses the disk of an instance that has ended");
    Err(Error::Retry("the disk of the instance is still in use".into()))
}

/// Refuses new disks on a full host: existing instances need the space they were promised.
fn check_free_space(directory: &Path) -> io::Result<()> {
    let disk = statvfs(directory)?;
    let (part, most) = RESERVE;
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    if bytes(disk.f_bavail) < (bytes(disk.f_blocks) / part).min(most) {
        return Err(io::Error::new(
            io::ErrorKind::StorageFull,
            "the rest of the disk of the host is reserved for existing instances",
        ));
    }
    Ok(())
}
