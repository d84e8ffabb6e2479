//! An attempt of a job, as the guest knows it: how far it is, what it wrote, and how it ended.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::pipe::SpliceFlags;
use tarn_link::JobEnd;
use tokio::sync::watch;

use super::conversation::{Conversation, ToSupervisor};
use super::failures::Failure;
use super::places::{LOG, ORDER, OUTCOME};
use crate::configuration::files::{Owner, open_directory, replace};

/// In which steps output that is written down elsewhere is given back to the disk.
const FREED: u64 = 4 << 20;

/// The same while the disk is full.
const FREED_IN_NEED: u64 = 4 << 10;

/// How far an attempt is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its commands do not run yet.
    Starting,
    /// They could not be run.
    NotStarted(Failure),
    /// They run.
    Running,
    /// It has ended.
    Ended(JobEnd),
}

/// What a follower waits for.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    pub(super) stage: Stage,
    /// How long the log is.
    pub(super) length: u64,
}

/// What the supervisor should know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    pub(super) acknowledged: u64,
    /// The shortest grace that was asked for.
    pub(super) stop: Option<u32>,
}

/// What connects the guest with an attempt that runs.
#[derive(Debug)]
pub(super) struct Source {
    /// The end of the pipe that the supervisor reads: should it die, what is left in there is taken from here.
    pub(super) pipe: OwnedFd,
    /// What the supervisor is told.
    pub(super) conversation: Arc<Conversation>,
}

/// An attempt.
#[derive(Debug)]
pub(super) struct Attempt {
    directory: PathBuf,
    log: File,
    /// All of the log before this may be gone.
    freed: AtomicU64,
    pub(super) progress: watch::Sender<Progress>,
    pub(super) wishes: watch::Sender<Wishes>,
    source: Mutex<Option<Source>>,
}

impl Attempt {
    /// An attempt whose directory is there, with the log in it.
    pub(super) fn open(directory: PathBuf, stage: Stage, source: Option<Source>) -> io::Result<Attempt> {
        let log = File::options().read(true).write(true).create(true).truncate(false).open(directory.join(LOG))?;
        let length = log.metadata()?.len();
        // What was given back is a hole in the file. Where there is nothing but a hole, everything was.
        let freed = match rustix::fs::seek(&log, SeekFrom::Data(0)) {
            Ok(first) => first,
            Err(Errno::NXIO) => length,
            Err(_) => 0,
        };
        let progress = watch::Sender::new(Progress { stage, length });
        let (freed, wishes) = (AtomicU64::new(freed), watch::Sender::new(Wishes::default()));
        Ok(Attempt { directory, log, freed, progress, wishes, source: Mutex::new(source) })
    }

    /// Forgets it. Its files stay, and are empty: they go with those of the job. To some filesystems it is expensive to make files
    /// for a while after many were removed.
    pub(super) fn forget(&self) {
        // The order first: what has none, and no log, is no attempt. Root may have put anything in its place by now.
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let order = rustix::fs::open(self.directory.join(ORDER), flags, Mode::empty());
        let log = self.log.set_len(0);
        if let Err(e) = order.map_err(io::Error::from).and(log) {
            eprintln!("tarn-guest: an attempt of a job could not be forgotten: {e}");
        }
    }

    /// Whether something of it may run.
    pub(super) fn runs(&self) -> bool {
        matches!(self.progress.borrow().stage, Stage::Starting | Stage::Running)
    }

    /// Whether the log is whole from an offset on.
    pub(super) fn is_kept_from(&self, offset: u64) -> bool {
        self.freed.load(Ordering::SeqCst) <= offset
    }

    /// Reads some of the log; nothing if it is not there any more.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let length = self.log.read_at(buffer, offset)?;
        // Looked at afterwards: a hole reads as zeros.
        Ok(if self.is_kept_from(offset) { length } else { 0 })
    }

    /// Says how long the log is now.
    pub(super) fn measure(&self) {
        if let Ok(found) = self.log.metadata() {
            self.progress
                .send_if_modified(|progress| std::mem::replace(&mut progress.length, found.len()) != found.len());
        }
    }

    /// Notes that the beginning of the log is written down elsewhere, and gives it back.
    pub(super) fn acknowledge(&self, offset: u64) {
        let offset = offset.min(self.progress.borrow().length);
        self.wishes.send_if_modified(|wishes| {
            let is_news = offset > wishes.acknowledged;
            wishes.acknowledged = wishes.acknowledged.max(offset);
            is_news
        });
        self.free(FREED);
    }

    /// Gives back whatever can be, because the disk is full.
    pub(super) fn free_in_need(&self) {
        self.free(FREED_IN_NEED);
    }

    fn free(&self, step: u64) {
        let until = self.wishes.borrow().acknowledged / step * step;
        let before = self.freed.fetch_max(until, Ordering::SeqCst);
        if before < until {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // A filesystem that has no holes keeps it until the attempt is forgotten.
            let _ = rustix::fs::fallocate(&self.log, how, before, until - before);
        }
    }

    /// Lets the supervisor know that the instance ends, before anybody else hears of it.
    pub(super) fn prepare_for_the_end(&self) {
        if let Some(source) = self.source.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            source.conversation.mention(&ToSupervisor::InstanceEnds);
        }
    }

    /// Takes what is left in the pipe; only when nobody else does any more.
    pub(super) fn take_the_rest(&self) {
        let source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(Source { pipe, .. }), Ok(found)) = (source.as_ref(), self.log.metadata()) else { return };
        let mut offset = found.len();
        // What is in there now, and no more: somebody may be left who writes to it. What does not fit on the disk is lost.
        let mut left = rustix::io::ioctl_fionread(pipe).unwrap_or(0);
        while left > 0
            && let Ok(length @ 1..) =
                rustix::pipe::splice(pipe, None, &self.log, Some(&mut offset), 1 << 20, SpliceFlags::NONBLOCK)
        {
            left = left.saturating_sub(length as u64);
        }
    }

    /// Tells how far it is now; an end is written down first. One that has ended stays as it is.
    pub(super) fn advance(&self, stage: Stage) {
        if !self.runs() {
            return;
        }
        if let Stage::Ended(end) = &stage {
            if keep_outcome(&self.directory, end).is_err() {
                self.free_in_need();
                // It is known as long as the guest lives. After that the attempt counts as lost, which is as true as can be.
                let _ = keep_outcome(&self.directory, end);
            }
            self.source.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        self.measure();
        self.progress.send_modify(|progress| progress.stage = stage);
    }
}

/// Writes down how an attempt ended.
pub(super) fn keep_outcome(directory: &Path, end: &JobEnd) -> io::Result<()> {
    let owner = Owner { account: None, mode: Mode::RUSR | Mode::WUSR };
    replace(open_directory(directory)?, OUTCOME, &serde_json::to_vec(end)?, owner)
}
