//! The log of an attempt: the bytes of the commands' output go from their pipe right into a file.
//!
//! The kernel moves them, so that a byte is at any time in the pipe or in the file, and never only in the memory of
//! a process that may be killed. The guest holds the pipe as well and can always take what is left in it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::pipe::SpliceFlags;

/// How many bytes may wait for their acknowledgement before the commands have to wait.
const MAX_WAITING: u64 = 4 << 30;

/// How many while the disk is nearly full.
const MAX_WAITING_IN_NEED: u64 = 4 << 20;

/// How much of the disk is left to others.
const RESERVE: u64 = 256 << 20;

/// How often the disk is looked at, in bytes written.
const LOOK: u64 = 16 << 20;

/// How many bytes are taken at a time.
const PIECE: usize = 1 << 20;

/// What came of taking output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// So many bytes.
    Some(u64),
    /// There are none now.
    Nothing,
    /// The disk is full.
    Full,
}

/// The log.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    written: u64,
    acknowledged: u64,
    looked_at: u64,
    in_need: bool,
}

impl Log {
    /// A log that goes on at the end of a file.
    pub(super) fn new(file: File) -> io::Result<Log> {
        let written = file.metadata()?.len();
        let mut log = Log { file, written, acknowledged: 0, looked_at: 0, in_need: false };
        log.look();
        Ok(log)
    }

    /// Notes that bytes are written down elsewhere.
    pub(super) fn acknowledge(&mut self, offset: u64) {
        self.acknowledged = self.acknowledged.max(offset.min(self.written));
    }

    /// Whether more may be taken now.
    pub(super) fn has_room(&self) -> bool {
        let limit = if self.in_need { MAX_WAITING_IN_NEED } else { MAX_WAITING };
        self.written - self.acknowledged < limit
    }

    /// Looks how full the disk is. What cannot be known does not matter: a full disk says so when it is written to.
    pub(super) fn look(&mut self) {
        self.looked_at = self.written;
        let free = rustix::fs::fstatvfs(&self.file).map(|found| found.f_bavail.saturating_mul(found.f_frsize));
        self.in_need = free.is_ok_and(|free| free < RESERVE);
    }

    /// Takes output that is there, without waiting.
    pub(super) fn take(&mut self, pipe: impl AsFd) -> io::Result<Taken> {
        let mut offset = self.written;
        let moved = rustix::pipe::splice(pipe, None, &self.file, Some(&mut offset), PIECE, SpliceFlags::NONBLOCK);
        match moved {
            Ok(0) => Ok(Taken::Nothing),
            Ok(length) => {
                self.written += length as u64;
                if self.written - self.looked_at >= LOOK {
                    self.look();
                }
                Ok(Taken::Some(length as u64))
            }
            Err(Errno::AGAIN) => Ok(Taken::Nothing),
            Err(Errno::NOSPC | Errno::DQUOT) => Ok(Taken::Full),
            Err(e) => Err(e.into()),
        }
    }
}
