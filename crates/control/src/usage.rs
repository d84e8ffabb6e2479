//! How much of each volume is used, as it was seen last. It is no part of the database: it changes all the time, and whoever
//! starts looks anew.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tarn_driver::{Observed, ObservedVolume};
use tarn_model::ids::VolumeId;

/// Figures are kept in megabytes: a smaller change is not worth that answers are made anew.
const MEGABYTE: u64 = 1_000_000;

/// What this process has seen.
#[derive(Default)]
pub(crate) struct Usage(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    megabytes: HashMap<VolumeId, u64>,
    changes: u64,
}

impl Usage {
    /// How many bytes of a volume are used, if that is known.
    pub(crate) fn of(&self, volume: &VolumeId) -> Option<u64> {
        self.seen().megabytes.get(volume).map(|megabytes| megabytes * MEGABYTE)
    }

    /// Counts how often a figure has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.seen().changes
    }

    /// Remembers what was seen of one volume.
    pub(crate) fn remember(&self, volume: &VolumeId, observed: &ObservedVolume) {
        let mut seen = self.seen();
        let before = match observed.used_bytes {
            Some(bytes) => seen.megabytes.insert(volume.clone(), megabytes(bytes)),
            None => seen.megabytes.remove(volume),
        };
        if before != observed.used_bytes.map(megabytes) {
            seen.changes += 1;
        }
    }

    /// Remembers what was seen of all volumes, and forgets the others.
    pub(crate) fn remember_all(&self, observed: &Observed) {
        let used = observed.volumes.iter().filter_map(|(id, volume)| Some((id.clone(), megabytes(volume.used_bytes?))));
        let (used, mut seen) = (used.collect(), self.seen());
        if seen.megabytes != used {
            seen.megabytes = used;
            seen.changes += 1;
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rounded up, so that only what is empty shows as nothing.
fn megabytes(bytes: u64) -> u64 {
    bytes.div_ceil(MEGABYTE)
}
