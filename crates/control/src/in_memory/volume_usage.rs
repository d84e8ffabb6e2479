//! How much of each volume is used, as observed last. It is not stored: it changes all the time, and a process that
//! starts observes the volumes again.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use tarn_driver::{Observed, ObservedVolume};
use tarn_model::ids::VolumeId;

/// Figures are kept in megabytes, so that smaller changes do not invalidate cached responses.
const MEGABYTE: u64 = 1_000_000;

/// The last observed figures of this process.
#[derive(Default)]
pub(crate) struct VolumeUsage(Mutex<Figures>);

#[derive(Default)]
struct Figures {
    megabytes: HashMap<VolumeId, u64>,
    changes: u64,
}

impl VolumeUsage {
    /// Returns how many bytes of a volume are used, if known.
    pub(crate) fn used_bytes(&self, volume: &VolumeId) -> Option<u64> {
        self.lock_figures().megabytes.get(volume).map(|megabytes| megabytes * MEGABYTE)
    }

    /// Counts the changes of any figure.
    pub(crate) fn changes(&self) -> u64 {
        self.lock_figures().changes
    }

    /// Records the usage of one volume.
    pub(crate) fn record_volume(&self, volume: &VolumeId, observed: &ObservedVolume) {
        let mut figures = self.lock_figures();
        let before = match observed.used_bytes {
            Some(bytes) => figures.megabytes.insert(volume.clone(), round_up_to_megabytes(bytes)),
            None => figures.megabytes.remove(volume),
        };
        if before != observed.used_bytes.map(round_up_to_megabytes) {
            figures.changes += 1;
        }
    }

    /// Records the usage of all volumes and drops the others.
    pub(crate) fn record_all_volumes(&self, observed: &Observed) {
        let used = observed
            .volumes
            .iter()
            .filter_map(|(id, volume)| Some((id.clone(), round_up_to_megabytes(volume.used_bytes?))));
        let (used, mut figures) = (used.collect(), self.lock_figures());
        if figures.megabytes != used {
            figures.megabytes = used;
            figures.changes += 1;
        }
    }

    fn lock_figures(&self) -> MutexGuard<'_, Figures> {
        self.0.lock()
    }
}

/// Rounds up, so that only an empty volume shows zero.
fn round_up_to_megabytes(bytes: u64) -> u64 {
    bytes.div_ceil(MEGABYTE)
}
