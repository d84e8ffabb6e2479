//! The system call that asks the kernel to start writing, so that the final sync has little left to do.
#![allow(unsafe_code, reason = "sync_file_range has no safe wrapper")]

use std::fs::File;
use std::os::fd::AsRawFd;

/// Starts to write a range of a file to the disk without waiting for it. It is a hint: only the sync guarantees the
/// bytes.
pub(in crate::files) fn begin_writeback(file: &File, offset: u64, length: u64) {
    let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) else { return };
    // SAFETY: the descriptor is open for as long as the borrow lasts, and the call takes numbers only.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE);
    }
}
