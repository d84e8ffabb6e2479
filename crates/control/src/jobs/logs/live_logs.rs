//! The end of the logs of running jobs, in memory: output that many callers follow is read once.
//!
//! Only stored output is here. A follower that is further behind reads from the database first.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tarn_model::ids::JobId;
use tokio::sync::watch;
use tokio::time::Instant;

/// How many bytes are kept of each log, with and without a follower.
const KEPT_BYTES: usize = 1 << 20;
const KEPT_BYTES_UNFOLLOWED: usize = 64 << 10;

/// The memory that a piece uses besides its bytes.
const OVERHEAD: usize = 64;

/// The logs that a task writes or a caller follows.
#[derive(Default)]
pub(crate) struct LiveLogs(Mutex<HashMap<JobId, Weak<LiveLog>>>);

/// The end of one log.
pub(crate) struct LiveLog {
    tail: Mutex<LiveTail>,
    /// Counts appends and changes of the job's state.
    changes: watch::Sender<u64>,
    /// Counts only the changes of the job's state.
    state_changes: AtomicU64,
    /// The last read of the job's progress, shared by all followers.
    progress_read: tokio::sync::Mutex<Option<ProgressRead>>,
    /// Held while a follower reads older output from the database.
    block_read: tokio::sync::Mutex<()>,
}

/// A read of a job's progress from the database.
#[derive(Clone, Copy)]
pub(crate) struct ProgressRead {
    pub(crate) at: Instant,
    /// The value of the change counter before the read.
    pub(crate) changes: u64,
    /// The length of the log and whether the job had ended; `None` if there was no such job.
    pub(crate) progress: Option<(u64, bool)>,
}

#[derive(Default)]
struct LiveTail {
    /// Pieces in order and without gaps, each with its offset.
    pieces: VecDeque<(u64, Bytes)>,
    /// The memory that the pieces use together.
    cost: usize,
    /// When the last piece was added.
    last: Option<Instant>,
}

impl LiveLogs {
    /// Returns the log of a job. It is dropped when nothing refers to it any more.
    pub(crate) fn open_log(&self, job: &JobId) -> Arc<LiveLog> {
        let mut logs = self.0.lock();
        if let Some(log) = logs.get(job).and_then(Weak::upgrade) {
            return log;
        }
        let (changes, state_changes) = (watch::Sender::new(0), AtomicU64::new(0));
        let log = Arc::new(LiveLog {
            tail: Mutex::default(),
            changes,
            state_changes,
            progress_read: tokio::sync::Mutex::default(),
            block_read: tokio::sync::Mutex::default(),
        });
        logs.retain(|_, log| log.strong_count() > 0);
        logs.insert(job.clone(), Arc::downgrade(&log));
        log
    }

    /// Returns the log of a job, if a task writes it or a caller follows it.
    pub(crate) fn find_log(&self, job: &JobId) -> Option<Arc<LiveLog>> {
        self.0.lock().get(job).and_then(Weak::upgrade)
    }

    /// Notifies all logs of a change that affects many jobs.
    pub(crate) fn notify_all_logs(&self) {
        let logs: Vec<_> = {
            let logs = self.0.lock();
            logs.values().filter_map(Weak::upgrade).collect()
        };
        logs.iter().for_each(|log| log.notify_state_change());
    }
}

impl LiveLog {
    /// Adds output that was stored at the offset `start`.
    pub(crate) fn append_output(&self, start: u64, data: Bytes) {
        // The task that runs the job subscribes, too.
        let is_followed = self.changes.receiver_count() > 1;
        let mut tail = self.tail.lock();
        tail.push_piece(start, data, if is_followed { KEPT_BYTES } else { KEPT_BYTES_UNFOLLOWED });
        drop(tail);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Notifies subscribers that the state of the job has changed.
    pub(crate) fn notify_state_change(&self) {
        self.state_changes.fetch_add(1, Ordering::SeqCst);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Returns how often the state of the job has changed.
    pub(crate) fn state_changes(&self) -> u64 {
        self.state_changes.load(Ordering::SeqCst)
    }

    /// Returns the end of the log, if its last piece is in memory.
    pub(crate) fn end_offset(&self) -> Option<u64> {
        let tail = self.tail.lock();
        tail.pieces.back().map(|(at, piece)| at + piece.len() as u64)
    }

    /// Locks the last read of the progress. The caller that holds the lock reads for all that wait for it.
    pub(crate) async fn lock_progress(&self) -> tokio::sync::MutexGuard<'_, Option<ProgressRead>> {
        self.progress_read.lock().await
    }

    /// Locks the reading of older output. The follower that holds the lock reads for all that wait for it.
    pub(crate) async fn lock_block(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.block_read.lock().await
    }

    /// Returns how long ago output was stored by this engine.
    pub(crate) fn time_since_output(&self) -> Option<Duration> {
        self.tail.lock().last.map(|last| last.elapsed())
    }

    /// Returns the output at `offset`; `None` if it is not in memory.
    pub(crate) fn read_from(&self, offset: u64) -> Option<Bytes> {
        let tail = self.tail.lock();
        let at = tail.pieces.partition_point(|(start, piece)| start + piece.len() as u64 <= offset);
        let (start, piece) = tail.pieces.get(at)?;
        let skipped = usize::try_from(offset.checked_sub(*start)?).ok()?;
        Some(piece.slice(skipped..))
    }

    /// Subscribes to all changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

impl LiveTail {
    /// Adds a piece, and drops old pieces until at most `kept` bytes are used.
    fn push_piece(&mut self, start: u64, data: Bytes, kept: usize) {
        let end = self.pieces.back().map(|(at, piece)| at + piece.len() as u64);
        if end.is_some_and(|end| end != start) {
            *self = LiveTail::default();
        }
        self.last = Some(Instant::now());
        let most = kept - OVERHEAD;
        let (start, data) = match data.len().checked_sub(most) {
            // A slice would keep the memory of the whole piece.
            Some(more @ 1..) => (start + more as u64, Bytes::copy_from_slice(&data[more..])),
            _ => (start, data),
        };
        self.cost += data.len() + OVERHEAD;
        self.pieces.push_back((start, data));
        while self.cost > kept
            && let Some((_, piece)) = self.pieces.pop_front()
        {
            self.cost -= piece.len() + OVERHEAD;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the end of a log is kept.
    #[test]
    fn only_end_is_kept() {
        let logs = LiveLogs::default();
        let log = logs.open_log(&"j-000000000000".parse().unwrap());
        let _listening = (log.subscribe(), log.subscribe());
        log.append_output(10, Bytes::from_static(b"hello "));
        log.append_output(16, Bytes::from_static(b"world"));
        assert_eq!(log.read_from(12).unwrap(), "llo ");
        assert_eq!(log.read_from(16).unwrap(), "world");
        assert_eq!((log.read_from(9), log.read_from(21)), (None, None));
        log.append_output(21, Bytes::from(vec![b'x'; KEPT_BYTES]));
        assert_eq!((log.read_from(16), log.read_from(21)), (None, None), "old output is not in memory");
        assert_eq!(log.read_from(21 + OVERHEAD as u64).unwrap().len(), KEPT_BYTES - OVERHEAD);
        assert_eq!(log.end_offset(), Some(21 + KEPT_BYTES as u64));
    }

    /// A log without followers uses little memory.
    #[test]
    fn unfollowed_log_uses_little_memory() {
        let logs = LiveLogs::default();
        let log = logs.open_log(&"j-000000000000".parse().unwrap());
        let of_the_task = log.subscribe();
        for start in 0..100_000 {
            log.append_output(start, Bytes::from_static(b"x"));
        }
        let tail = || {
            let tail = log.tail.lock();
            (tail.pieces.len(), tail.cost)
        };
        assert!(tail().0 <= KEPT_BYTES_UNFOLLOWED / OVERHEAD && tail().1 <= KEPT_BYTES_UNFOLLOWED, "{:?}", tail());
        assert_eq!(log.read_from(99_999).unwrap(), "x");
        let listening = log.subscribe();
        log.append_output(100_000, Bytes::from(vec![b'y'; KEPT_BYTES / 2]));
        assert_eq!(log.read_from(99_999).unwrap(), "x", "more is kept while a caller follows");
        drop((of_the_task, listening));
        log.append_output(100_000 + (KEPT_BYTES / 2) as u64, Bytes::from_static(b"z"));
        assert_eq!(tail(), (1, 1 + OVERHEAD));
    }

    /// A gap resets the tail.
    #[test]
    fn gap_resets_tail() {
        let logs = LiveLogs::default();
        let log = logs.open_log(&"j-000000000000".parse().unwrap());
        log.append_output(0, Bytes::from_static(b"abc"));
        log.append_output(7, Bytes::from_static(b"def"));
        assert_eq!((log.read_from(0), log.read_from(7)), (None, Some(Bytes::from_static(b"def"))));
    }
}
