//! The one call that asks the kernel to begin with writing, so that the final sync has little left to wait for.
#![allow(unsafe_code, reason = "sync_file_range has no safe wrapper")]

use std::fs::File;
use std::os::fd::AsRawFd;

/// Begins to write these bytes of a file to the disk and does not wait for it. It is a hint: whether they arrive is what the
/// sync says.
pub(in crate::files) fn begin(file: &File, offset: u64, length: u64) {
    let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) else { return };
    // SAFETY: the descriptor is open for as long as the borrow lasts, and the call takes numbers only.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE);
    }
}
