//! Making a volume exist with at least its size.

use super::grow::grow;
use super::look::{self, Volume};
use super::make;
use crate::local::local_host::{LocalHost, blocking};
use crate::{Error, ObservedVolume, VolumeSpec};

/// Sizes are whole blocks of the filesystem and of every disk.
const BLOCK: u64 = 4096;

/// XFS is not made smaller than this.
const MIN_BYTES: u64 = 300 << 20;

/// Makes the volume exist. One that exists is never formatted and never shrinks, and one that has a fault is not touched.
pub(in crate::local) async fn ensure(host: &LocalHost, spec: &VolumeSpec) -> Result<ObservedVolume, Error> {
    let mkfs = host.volumes.mkfs()?;
    host.volumes.check(&host.places)?;
    let size_bytes = spec.size_bytes.checked_next_multiple_of(BLOCK).ok_or_else(make::too_large)?;
    let _one_at_a_time = host.lock(&spec.id).await;
    let (places, id) = (host.places.clone(), spec.id.clone());
    match blocking("a volume could not be looked at", move || look::inspect(&places, &id)).await? {
        Volume::Absent if size_bytes < MIN_BYTES => {
            return Err(Error::Permanent(format!("a volume has at least {} MiB", MIN_BYTES >> 20)));
        }
        Volume::Absent => make::make(host, &mkfs, &spec.id, size_bytes).await?,
        Volume::Sound { .. } => grow(host, &spec.id, size_bytes).await?,
        Volume::Faulty { fault, .. } => return Err(fault.refusal(&spec.id)),
    }
    let seen = look::one(host, &spec.id).await?;
    seen.ok_or_else(|| Error::Retry("the volume was made and is gone again".into()))
}
