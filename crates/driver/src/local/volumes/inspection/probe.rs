//! Probes a mounted filesystem. One that is not mounted is left alone, because mounting writes to it.

use std::io;
use std::path::Path;

use rustix::fs::fstatvfs;

use crate::local::host::loop_device::LoopDevice;
use crate::local::host::xfs;

/// What the kernel reports for a mounted filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::local::volumes) struct LiveUsage {
    /// The size without the journal.
    pub(in crate::local::volumes) size_bytes: u64,
    pub(in crate::local::volumes) used_bytes: u64,
}

/// Asks the kernel; `None` when the device is not mounted. Damage is an error.
pub(in crate::local::volumes) fn probe_mounted(device: &LoopDevice) -> io::Result<Option<LiveUsage>> {
    if !Path::new("/sys/fs/xfs").join(device.name()).exists() {
        return Ok(None);
    }
    let counted = fstatvfs(xfs::mount_detached(&device.path)?)?;
    let bytes = |blocks: u64| blocks.saturating_mul(counted.f_frsize);
    let used = counted.f_blocks.saturating_sub(counted.f_bfree);
    Ok(Some(LiveUsage { size_bytes: bytes(counted.f_blocks), used_bytes: bytes(used) }))
}
