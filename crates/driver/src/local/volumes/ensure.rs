//! Making a volume exist with at least its size.

use super::create;
use super::grow::grow_volume;
use super::inspection::{self, VolumeState};
use crate::local::local_host::{LocalHost, blocking};
use crate::{Error, ObservedVolume, VolumeSpec};

/// Sizes are whole blocks of the filesystem and of every disk.
const BLOCK: u64 = 4096;

/// XFS is not made smaller than this.
const MIN_BYTES: u64 = 300 << 20;

/// Makes the volume exist. One that exists is never formatted and never shrinks, and one that has a fault is not touched.
pub(in crate::local) async fn ensure_volume(host: &LocalHost, spec: &VolumeSpec) -> Result<ObservedVolume, Error> {
    let mkfs = host.volumes.mkfs()?;
    host.volumes.check_pool_present(&host.paths)?;
    let size_bytes = spec.size_bytes.checked_next_multiple_of(BLOCK).ok_or_else(create::too_large_error)?;
    let _one_at_a_time = host.lock(&spec.id).await;
    let (paths, id) = (host.paths.clone(), spec.id.clone());
    match blocking("a volume could not be looked at", move || inspection::inspect_file(&paths, &id)).await? {
        VolumeState::Absent if size_bytes < MIN_BYTES => {
            return Err(Error::Permanent(format!("a volume has at least {} MiB", MIN_BYTES >> 20)));
        }
        VolumeState::Absent => create::create_volume(host, &mkfs, &spec.id, size_bytes).await?,
        VolumeState::Sound { .. } => grow_volume(host, &spec.id, size_bytes).await?,
        VolumeState::Faulty { fault, .. } => return Err(fault.refusal(&spec.id)),
    }
    let seen = inspection::observe_volume(host, &spec.id).await?;
    seen.ok_or_else(|| Error::Retry("the volume was made and is gone again".into()))
}
