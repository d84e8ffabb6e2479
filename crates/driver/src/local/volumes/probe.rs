//! Looking at a filesystem that somebody has mounted. One that nobody has mounted is left alone, because mounting writes to it.

use std::io;
use std::path::Path;

use rustix::fs::fstatvfs;

use super::device::Device;
use crate::local::filesystems;

/// What the kernel says of a mounted filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Live {
    /// Its size without its journal.
    pub(super) size_bytes: u64,
    /// What is taken of it.
    pub(super) used_bytes: u64,
}

/// Asks the kernel; `None` when the device is not mounted. Damage is an error.
pub(super) fn probe(device: &Device) -> io::Result<Option<Live>> {
    if !Path::new("/sys/fs/xfs").join(device.name()).exists() {
        return Ok(None);
    }
    let counted = fstatvfs(filesystems::mount(&device.path)?)?;
    let bytes = |blocks: u64| blocks.saturating_mul(counted.f_frsize);
    let used = counted.f_blocks.saturating_sub(counted.f_bfree);
    Ok(Some(Live { size_bytes: bytes(counted.f_blocks), used_bytes: bytes(used) }))
}
