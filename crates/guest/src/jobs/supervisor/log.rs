//! The log of an attempt: the output of the commands goes from their pipe directly into a file.
//!
//! The kernel moves the bytes, so that each is always in the pipe or in the file, and never only in the memory of a
//! process that may be killed. The guest holds the pipe as well and can always take what is left in it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::pipe::SpliceFlags;

/// How many unacknowledged bytes are stored before the commands have to wait.
const MAX_UNACKNOWLEDGED: u64 = 4 << 30;

/// The same while the disk is nearly full.
const MAX_UNACKNOWLEDGED_DISK_LOW: u64 = 4 << 20;

/// How much of the disk is left to other uses.
const RESERVE: u64 = 256 << 20;

/// How often the free space is checked, in written bytes.
const DISK_CHECK_STEP: u64 = 16 << 20;

/// How many bytes are moved at a time.
const PIECE: usize = 1 << 20;

/// The result of moving output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    Moved(u64),
    Empty,
    DiskFull,
}

/// The log of an attempt.
#[derive(Debug)]
pub(super) struct OutputLog {
    file: File,
    written: u64,
    acknowledged: u64,
    checked_at: u64,
    is_disk_low: bool,
}

impl OutputLog {
    /// Creates a log that continues at the end of a file.
    pub(super) fn new(file: File) -> io::Result<OutputLog> {
        let written = file.metadata()?.len();
        let mut log = OutputLog { file, written, acknowledged: 0, checked_at: 0, is_disk_low: false };
        log.check_disk();
        Ok(log)
    }

    /// Records that the engine has stored the output up to an offset.
    pub(super) fn acknowledge_output(&mut self, offset: u64) {
        self.acknowledged = self.acknowledged.max(offset.min(self.written));
    }

    /// Returns whether more output may be stored now.
    pub(super) fn has_room(&self) -> bool {
        let limit = if self.is_disk_low { MAX_UNACKNOWLEDGED_DISK_LOW } else { MAX_UNACKNOWLEDGED };
        self.written - self.acknowledged < limit
    }

    /// Checks the free space. If it is unknown, writing to a full disk will fail.
    pub(super) fn check_disk(&mut self) {
        self.checked_at = self.written;
        let free = rustix::fs::fstatvfs(&self.file).map(|found| found.f_bavail.saturating_mul(found.f_frsize));
        self.is_disk_low = free.is_ok_and(|free| free < RESERVE);
    }

    /// Moves available output to the file, without waiting.
    pub(super) fn take_output(&mut self, pipe: impl AsFd) -> io::Result<Transfer> {
        let mut offset = self.written;
        let moved = rustix::pipe::splice(pipe, None, &self.file, Some(&mut offset), PIECE, SpliceFlags::NONBLOCK);
        match moved {
            Ok(0) => Ok(Transfer::Empty),
            Ok(length) => {
                self.written += length as u64;
                if self.written - self.checked_at >= DISK_CHECK_STEP {
                    self.check_disk();
                }
                Ok(Transfer::Moved(length as u64))
            }
            Err(Errno::AGAIN) => Ok(Transfer::Empty),
            Err(Errno::NOSPC | Errno::DQUOT) => Ok(Transfer::DiskFull),
            Err(e) => Err(e.into()),
        }
    }
}
