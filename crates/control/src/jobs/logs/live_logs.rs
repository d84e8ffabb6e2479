//! The end of the logs of jobs that are driven here, in memory: what many listen to is read once.
//!
//! Only what is written down is here. Whoever comes from further behind reads the database first.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tarn_model::ids::JobId;
use tokio::sync::watch;
use tokio::time::Instant;

/// How many bytes are kept of each log, and how many while nobody listens.
const KEPT: usize = 1 << 20;
const KEPT_FOR_NOBODY: usize = 64 << 10;

/// What a piece costs besides its bytes.
const OVERHEAD: usize = 64;

/// The logs that somebody writes or listens to.
#[derive(Default)]
pub(crate) struct LiveLogs(Mutex<HashMap<JobId, Weak<LiveLog>>>);

/// The end of one log.
pub(crate) struct LiveLog {
    tail: Mutex<Tail>,
    /// Counts what happened: data came, or the state of the job changed.
    changes: watch::Sender<u64>,
    /// How often of it the state changed.
    touches: AtomicU64,
    /// What the database said a moment ago, for all who want to know it at the same time.
    seen: tokio::sync::Mutex<Option<Seen>>,
}

/// What the database said about a job.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    /// When.
    pub(crate) at: Instant,
    /// How much had happened by then.
    pub(crate) changes: u64,
    /// How long the log was and whether the job had ended; `None` when there was no such job.
    pub(crate) progress: Option<(u64, bool)>,
}

#[derive(Default)]
struct Tail {
    /// Pieces in order, without gaps, each with where it begins.
    pieces: VecDeque<(u64, Bytes)>,
    /// What they cost together.
    cost: usize,
    /// When the last one came.
    last: Option<Instant>,
}

impl LiveLogs {
    /// The log of a job. It is forgotten when nobody holds it any more.
    pub(crate) fn of(&self, job: &JobId) -> Arc<LiveLog> {
        let mut logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = logs.get(job).and_then(Weak::upgrade) {
            return log;
        }
        let (changes, touches) = (watch::Sender::new(0), AtomicU64::new(0));
        let log = Arc::new(LiveLog { tail: Mutex::default(), changes, touches, seen: tokio::sync::Mutex::default() });
        logs.retain(|_, log| log.strong_count() > 0);
        logs.insert(job.clone(), Arc::downgrade(&log));
        log
    }

    /// The log of a job, if somebody writes it or listens to it.
    pub(crate) fn known(&self, job: &JobId) -> Option<Arc<LiveLog>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(job).and_then(Weak::upgrade)
    }

    /// Says that something has changed with many jobs at once.
    pub(crate) fn touch_all(&self) {
        let logs: Vec<_> = {
            let logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            logs.values().filter_map(Weak::upgrade).collect()
        };
        logs.iter().for_each(|log| log.touch());
    }
}

impl LiveLog {
    /// Adds what was written down from `start` on.
    pub(crate) fn append(&self, start: u64, data: Bytes) {
        // The driver is told of changes, too.
        let is_heard = self.changes.receiver_count() > 1;
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.append(start, data, if is_heard { KEPT } else { KEPT_FOR_NOBODY });
        drop(tail);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Says that something else about the job has changed.
    pub(crate) fn touch(&self) {
        self.touches.fetch_add(1, Ordering::SeqCst);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// How often something else than the log has changed.
    pub(crate) fn touches(&self) -> u64 {
        self.touches.load(Ordering::SeqCst)
    }

    /// Where the log ends, as far as that is known here.
    pub(crate) fn end(&self) -> Option<u64> {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.pieces.back().map(|(at, piece)| at + piece.len() as u64)
    }

    /// What the database said. Whoever asks it keeps the others waiting, and tells them.
    pub(crate) async fn seen(&self) -> tokio::sync::MutexGuard<'_, Option<Seen>> {
        self.seen.lock().await
    }

    /// How long ago something was written down, if it was here.
    pub(crate) fn quiet_for(&self) -> Option<Duration> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).last.map(|last| last.elapsed())
    }

    /// What there is from `offset` on; `None` if that is not here, or nothing came after it yet.
    pub(crate) fn from(&self, offset: u64) -> Option<Bytes> {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let at = tail.pieces.partition_point(|(start, piece)| start + piece.len() as u64 <= offset);
        let (start, piece) = tail.pieces.get(at)?;
        let skipped = usize::try_from(offset.checked_sub(*start)?).ok()?;
        Some(piece.slice(skipped..))
    }

    /// Tells of every change from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

impl Tail {
    /// Adds a piece, and forgets what is old: not more than `kept` is left.
    fn append(&mut self, start: u64, data: Bytes, kept: usize) {
        let end = self.pieces.back().map(|(at, piece)| at + piece.len() as u64);
        if end.is_some_and(|end| end != start) {
            *self = Tail::default();
        }
        self.last = Some(Instant::now());
        let most = kept - OVERHEAD;
        let (start, data) = match data.len().checked_sub(most) {
            // A part of it would hold the memory of the whole.
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

    #[test]
    fn the_end_is_kept_and_nothing_else() {
        let logs = LiveLogs::default();
        let log = logs.of(&"j-000000000000".parse().unwrap());
        let _listening = (log.changes(), log.changes());
        log.append(10, Bytes::from_static(b"hello "));
        log.append(16, Bytes::from_static(b"world"));
        assert_eq!(log.from(12).unwrap(), "llo ");
        assert_eq!(log.from(16).unwrap(), "world");
        assert_eq!((log.from(9), log.from(21)), (None, None));
        log.append(21, Bytes::from(vec![b'x'; KEPT]));
        assert_eq!((log.from(16), log.from(21)), (None, None), "what is old is read elsewhere");
        assert_eq!(log.from(21 + OVERHEAD as u64).unwrap().len(), KEPT - OVERHEAD);
        assert_eq!(log.end(), Some(21 + KEPT as u64));
    }

    #[test]
    fn what_nobody_hears_costs_little() {
        let logs = LiveLogs::default();
        let log = logs.of(&"j-000000000000".parse().unwrap());
        let of_the_driver = log.changes();
        for start in 0..100_000 {
            log.append(start, Bytes::from_static(b"x"));
        }
        let tail = || {
            let tail = log.tail.lock().unwrap();
            (tail.pieces.len(), tail.cost)
        };
        assert!(tail().0 <= KEPT_FOR_NOBODY / OVERHEAD && tail().1 <= KEPT_FOR_NOBODY, "{:?}", tail());
        assert_eq!(log.from(99_999).unwrap(), "x");
        let listening = log.changes();
        log.append(100_000, Bytes::from(vec![b'y'; KEPT / 2]));
        assert_eq!(log.from(99_999).unwrap(), "x", "more is kept while somebody listens");
        drop((of_the_driver, listening));
        log.append(100_000 + (KEPT / 2) as u64, Bytes::from_static(b"z"));
        assert_eq!(tail(), (1, 1 + OVERHEAD));
    }

    #[test]
    fn after_a_gap_it_begins_anew() {
        let logs = LiveLogs::default();
        let log = logs.of(&"j-000000000000".parse().unwrap());
        log.append(0, Bytes::from_static(b"abc"));
        log.append(7, Bytes::from_static(b"def"));
        assert_eq!((log.from(0), log.from(7)), (None, Some(Bytes::from_static(b"def"))));
    }
}
