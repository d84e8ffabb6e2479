//! Ensures that a volume exists with at least its size.

use super::create;
use super::grow::grow_volume;
use super::inspection::{self, VolumeState};
use crate::local::local_host::{LocalHost, blocking};
use crate::{Error, ObservedVolume, VolumeSpec};

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
