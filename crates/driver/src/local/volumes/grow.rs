//! Ensures that a volume exists with at least its size.
//!
//! It grows in this order: its file, its device, its filesystem. An engine that dies in between leaves a filesystem
//! that is smaller than its file, and the next call continues from there.

use std::fs::File;
use std::io;

use tarn_model::ids::VolumeId;

use super::inspection::{self, VolumeState};
use super::{create, open, pool};
use crate::local::helper_process;
use crate::local::host::loop_device;
use crate::local::host::paths::InstallationPaths;
use crate::local::local_host::{LocalHost, blocking};
use crate::{Error, ObservedVolume, VolumeSpec};

const FAILED: &str = "the volume could not be grown";

/// A filesystem leaves the end of its file unused when that is shorter than its smallest allocation group.
pub(super) const MAX_UNUSED_TAIL: u64 = 1 << 20;

/// What growing writes for every added allocation group, and in total besides; with a margin.
const ROOM: (u64, u64) = (64 << 10, 16 << 20);

/// Grows an existing volume to at least this size, while the caller holds its lock.
pub(super) async fn grow_volume(host: &LocalHost, id: &VolumeId, size_bytes: u64) -> Result<(), Error> {
    let (paths, own) = (host.paths.clone(), id.clone());
    if !blocking(FAILED, move || lengthen_file(&paths, &own, size_bytes)).await?? {
        return Ok(());
    }
    let device = open::open_volume(host, id).await?;
    let device = blocking(FAILED, move || device.refresh_size().map(|()| device)).await?;
    helper_process::grow_filesystem(host, &device).await
}

/// Lengthens the file if necessary, and returns whether its filesystem has to follow.
fn lengthen_file(paths: &InstallationPaths, id: &VolumeId, wanted: u64) -> io::Result<Result<bool, Error>> {
    let (identity, size_bytes, superblock) = match inspection::inspect_file(paths, id)? {
        VolumeState::Sound { file, size_bytes, superblock } => (file, size_bytes, superblock),
        VolumeState::Faulty { fault, .. } => return Ok(Err(fault.refusal(id))),
        VolumeState::Absent => return Ok(Err(Error::Retry(FAILED.into()))),
    };
    let live = match inspection::probe_live(loop_device::scan_devices()?.find(identity)) {
        Ok(live) => live,
        Err(fault) => return Ok(Err(fault.refusal(id))),
    };
    let size = size_bytes.max(wanted);
    let more = superblock.unused_tail_bytes(size, live);
    if more < MAX_UNUSED_TAIL {
        return Ok(Ok(false));
    }
    // The kernel shuts down a mounted filesystem that cannot write what growing needs.
    let (part, rest) = ROOM;
    let parts = more / superblock.part_bytes.max(1) + 1;
    if pool::free_bytes(&paths.pool)? < parts.saturating_mul(part).saturating_add(rest) {
        return Ok(Err(create::disk_full_error(FAILED)));
    }
    if size > size_bytes {
        let file = File::options().write(true).open(paths.volume_file(id))?;
        match file.set_len(size) {
            Err(error) if create::is_file_too_large(&error) => return Ok(Err(create::too_large_error())),
            done => done?,
        }
        file.sync_all()?;
    }
    Ok(Ok(true))
}

/// Sizes are whole blocks of the filesystem and of every disk.
const BLOCK: u64 = 4096;

/// The smallest XFS that `mkfs.xfs` creates.
const MIN_BYTES: u64 = 300 << 20;

/// Ensures that the volume exists. An existing volume is never formatted and never shrinks, and one with a fault is not
/// touched.
pub(in crate::local) async fn ensure_volume(host: &LocalHost, spec: &VolumeSpec) -> Result<ObservedVolume, Error> {
    let mkfs = host.volumes.mkfs()?;
    host.volumes.check_pool_present(&host.paths)?;
    let size_bytes = spec.size_bytes.checked_next_multiple_of(BLOCK).ok_or_else(create::too_large_error)?;
    let _one_at_a_time = host.lock(&spec.id).await;
    let (paths, id) = (host.paths.clone(), spec.id.clone());
    match blocking("the volume could not be inspected", move || inspection::inspect_file(&paths, &id)).await? {
        VolumeState::Absent if size_bytes < MIN_BYTES => {
            return Err(Error::Permanent(format!("a volume has at least {} MiB", MIN_BYTES >> 20)));
        }
        VolumeState::Absent => create::create_volume(host, &mkfs, &spec.id, size_bytes).await?,
        VolumeState::Sound { .. } => grow_volume(host, &spec.id, size_bytes).await?,
        VolumeState::Faulty { fault, .. } => return Err(fault.refusal(&spec.id)),
    }
    let seen = inspection::observe_volume(host, &spec.id).await?;
    seen.ok_or_else(|| Error::Retry("the volume disappeared right after it was created".into()))
}
