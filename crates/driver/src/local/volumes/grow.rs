//! Growing a volume: first its file, then its device, then its filesystem. An engine that dies on the way leaves a filesystem
//! that is smaller than its file, and the next call goes on from there.

use std::fs::File;
use std::io;

use tarn_model::ids::VolumeId;

use super::device;
use super::look::{self, Volume};
use super::{make, open, pool};
use crate::Error;
use crate::local::errands;
use crate::local::local_host::{LocalHost, blocking};
use crate::local::places::Places;

const FAILED: &str = "the volume could not be grown";

/// A filesystem does not use the end of its file when it is smaller than its smallest part may be.
pub(super) const TAIL: u64 = 1 << 20;

/// What growing writes for every part that is added to the filesystem, and besides; with room to spare.
const ROOM: (u64, u64) = (64 << 10, 16 << 20);

/// Makes a volume that exists at least so large, while the caller holds its lock.
pub(super) async fn grow(host: &LocalHost, id: &VolumeId, size_bytes: u64) -> Result<(), Error> {
    let (places, own) = (host.places.clone(), id.clone());
    if !blocking(FAILED, move || lengthen(&places, &own, size_bytes)).await?? {
        return Ok(());
    }
    let device = open::open(host, id).await?;
    let device = blocking(FAILED, move || device.resize().map(|()| device)).await?;
    errands::grow(host, &device).await
}

/// Makes the file longer, if it has to be, and says whether its filesystem has to follow.
fn lengthen(places: &Places, id: &VolumeId, wanted: u64) -> io::Result<Result<bool, Error>> {
    let (identity, size_bytes, superblock) = match look::inspect(places, id)? {
        Volume::Sound { file, size_bytes, superblock } => (file, size_bytes, superblock),
        Volume::Faulty { fault, .. } => return Ok(Err(fault.refusal(id))),
        Volume::Absent => return Ok(Err(Error::Retry(FAILED.into()))),
    };
    let live = match look::live(device::scan()?.of(identity)) {
        Ok(live) => live,
        Err(fault) => return Ok(Err(fault.refusal(id))),
    };
    let size = size_bytes.max(wanted);
    let more = superblock.behind(size, live);
    if more < TAIL {
        return Ok(Ok(false));
    }
    // A mounted filesystem that cannot write what growing needs is given up by the kernel.
    let (part, rest) = ROOM;
    let parts = more / superblock.part_bytes.max(1) + 1;
    if pool::free(&places.pool)? < parts.saturating_mul(part).saturating_add(rest) {
        return Ok(Err(make::full(FAILED)));
    }
    if size > size_bytes {
        let file = File::options().write(true).open(places.volume_file(id))?;
        match file.set_len(size) {
            Err(error) if make::is_too_large(&error) => return Ok(Err(make::too_large())),
            done => done?,
        }
        file.sync_all()?;
    }
    Ok(Ok(true))
}
