//! Grows a volume: first its file, then its device, then its filesystem. An engine that dies in between leaves a
//! filesystem that is smaller than its file, and the next call continues from there.

use std::fs::File;
use std::io;

use tarn_model::ids::VolumeId;

use super::inspection::{self, VolumeState};
use super::{create, open, pool};
use crate::Error;
use crate::local::helper_calls;
use crate::local::host::loop_device;
use crate::local::host::paths::InstallationPaths;
use crate::local::local_host::{LocalHost, blocking};

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
    helper_calls::grow_filesystem(host, &device).await
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
