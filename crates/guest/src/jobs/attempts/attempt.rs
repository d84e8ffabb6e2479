//! The state of an attempt: its stage, its output, and its outcome.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::pipe::SpliceFlags;
use tarn_link::JobEnd;
use tokio::sync::watch;

use crate::filesystem::{Owner, open_directory, replace_file};
use crate::jobs::attempts::Failure;
use crate::jobs::paths::{LOG_FILE, ORDER_FILE, OUTCOME_FILE};
use crate::jobs::supervisor::messages::{SupervisorChannel, ToSupervisor};

/// The step in which acknowledged output is removed from the disk.
const FREE_STEP: u64 = 4 << 20;

/// The step while the disk is full.
const FREE_STEP_DISK_FULL: u64 = 4 << 10;

/// The stage of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::jobs) enum Stage {
    /// The commands do not run yet.
    Starting,
    NotStarted(Failure),
    Running,
    Ended(JobEnd),
}

/// The progress that followers wait for.
#[derive(Clone, Debug)]
pub(in crate::jobs) struct Progress {
    pub(in crate::jobs) stage: Stage,
    /// The length of the log.
    pub(in crate::jobs) length: u64,
}

/// What the supervisor has to be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::jobs) struct SupervisorRequests {
    pub(in crate::jobs) acknowledged: u64,
    /// The shortest grace period that was requested, in seconds.
    pub(in crate::jobs) stop: Option<u32>,
}

/// The connection of the guest to a running attempt.
#[derive(Debug)]
pub(in crate::jobs) struct SupervisorLink {
    /// The read end of the output pipe: if the supervisor dies, the guest drains the pipe itself.
    pub(in crate::jobs) pipe: OwnedFd,
    pub(in crate::jobs) channel: Arc<SupervisorChannel>,
}

/// An attempt of a job.
#[derive(Debug)]
pub(in crate::jobs) struct Attempt {
    directory: PathBuf,
    log: File,
    /// The log before this offset may have been removed.
    freed: AtomicU64,
    pub(in crate::jobs) progress: watch::Sender<Progress>,
    pub(in crate::jobs) requests: watch::Sender<SupervisorRequests>,
    supervisor_link: Mutex<Option<SupervisorLink>>,
}

impl Attempt {
    /// Opens an attempt whose directory exists, with its log.
    pub(in crate::jobs) fn open(
        directory: PathBuf,
        stage: Stage,
        supervisor_link: Option<SupervisorLink>,
    ) -> io::Result<Attempt> {
        let log = File::options().read(true).write(true).create(true).truncate(false).open(directory.join(LOG_FILE))?;
        let length = log.metadata()?.len();
        // Removed output is a hole in the file. If there is nothing but a hole, everything was removed.
        let freed = match rustix::fs::seek(&log, SeekFrom::Data(0)) {
            Ok(first) => first,
            Err(Errno::NXIO) => length,
            Err(_) => 0,
        };
        let progress = watch::Sender::new(Progress { stage, length });
        let (freed, requests) = (AtomicU64::new(freed), watch::Sender::new(SupervisorRequests::default()));
        Ok(Attempt { directory, log, freed, progress, requests, supervisor_link: Mutex::new(supervisor_link) })
    }

    /// Discards the attempt. Its files are emptied and stay until the job is removed: on some filesystems, creating
    /// files is slow for a while after many were removed.
    pub(in crate::jobs) fn discard(&self) {
        // The order comes first: without an order and a log there is no attempt. Root may have put anything in its
        // place by now.
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let order = rustix::fs::open(self.directory.join(ORDER_FILE), flags, Mode::empty());
        let log = self.log.set_len(0);
        if let Err(e) = order.map_err(io::Error::from).and(log) {
            eprintln!("tarn-guest: an attempt of a job could not be discarded: {e}");
        }
    }

    /// Returns whether a process of the attempt may run.
    pub(in crate::jobs) fn is_running(&self) -> bool {
        matches!(self.progress.borrow().stage, Stage::Starting | Stage::Running)
    }

    /// Returns whether the log is complete from an offset on.
    pub(in crate::jobs) fn has_log_from(&self, offset: u64) -> bool {
        self.freed.load(Ordering::SeqCst) <= offset
    }

    /// Reads from the log; returns 0 if that part has been removed.
    pub(in crate::jobs) fn read_log(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let length = self.log.read_at(buffer, offset)?;
        // Checked after the read, because a hole reads as zeros.
        Ok(if self.has_log_from(offset) { length } else { 0 })
    }

    /// Publishes the current length of the log.
    pub(in crate::jobs) fn update_log_length(&self) {
        if let Ok(found) = self.log.metadata() {
            self.progress
                .send_if_modified(|progress| std::mem::replace(&mut progress.length, found.len()) != found.len());
        }
    }

    /// Records that the engine has stored the log up to an offset, and removes that part.
    pub(in crate::jobs) fn acknowledge_log(&self, offset: u64) {
        let offset = offset.min(self.progress.borrow().length);
        self.requests.send_if_modified(|requests| {
            let is_news = offset > requests.acknowledged;
            requests.acknowledged = requests.acknowledged.max(offset);
            is_news
        });
        self.free_log(FREE_STEP);
    }

    /// Removes as much of the log as possible, because the disk is full.
    pub(in crate::jobs) fn free_log_on_full_disk(&self) {
        self.free_log(FREE_STEP_DISK_FULL);
    }

    fn free_log(&self, step: u64) {
        let until = self.requests.borrow().acknowledged / step * step;
        let before = self.freed.fetch_max(until, Ordering::SeqCst);
        if before < until {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // A filesystem without holes keeps it until the attempt is discarded.
            let _ = rustix::fs::fallocate(&self.log, how, before, until - before);
        }
    }

    /// Tells the supervisor that the instance is stopping, before any other process learns of it.
    pub(in crate::jobs) fn announce_shutdown(&self) {
        if let Some(supervisor_link) = self.supervisor_link.lock().as_ref() {
            supervisor_link.channel.try_send(&ToSupervisor::InstanceEnds);
        }
    }

    /// Moves the rest of the pipe to the log; only when no supervisor does so any more.
    pub(in crate::jobs) fn drain_pipe(&self) {
        let supervisor_link = self.supervisor_link.lock();
        let (Some(SupervisorLink { pipe, .. }), Ok(found)) = (supervisor_link.as_ref(), self.log.metadata()) else {
            return;
        };
        let mut offset = found.len();
        // Only what is in the pipe now: a process may be left that writes to it. Output that does not fit on the disk
        // is lost.
        let mut left = rustix::io::ioctl_fionread(pipe).unwrap_or(0);
        while left > 0
            && let Ok(length @ 1..) =
                rustix::pipe::splice(pipe, None, &self.log, Some(&mut offset), 1 << 20, SpliceFlags::NONBLOCK)
        {
            left = left.saturating_sub(length as u64);
        }
    }

    /// Publishes a new stage; an outcome is saved first. An attempt that has ended does not change.
    pub(in crate::jobs) fn advance_stage(&self, stage: Stage) {
        if !self.is_running() {
            return;
        }
        if let Stage::Ended(end) = &stage {
            if save_outcome(&self.directory, end).is_err() {
                self.free_log_on_full_disk();
                // The outcome is known while the guest runs. After that, the attempt counts as lost.
                let _ = save_outcome(&self.directory, end);
            }
            self.supervisor_link.lock().take();
        }
        self.update_log_length();
        self.progress.send_modify(|progress| progress.stage = stage);
    }
}

/// Saves the outcome of an attempt.
pub(in crate::jobs) fn save_outcome(directory: &Path, end: &JobEnd) -> io::Result<()> {
    let owner = Owner { account: None, mode: Mode::RUSR | Mode::WUSR };
    replace_file(open_directory(directory)?, OUTCOME_FILE, &serde_json::to_vec(end)?, owner)
}
