//! Files that no row refers to yet. They are in flight, and are removed again unless they are kept.

use std::fmt;
use std::sync::Arc;

use tarn_model::ids::FileId;
use tokio::runtime::Handle;

use super::directory::Directory;
use super::sync_rounds::FailureCount;

/// A durable file that no row refers to yet. The sweep ignores it while this value lives. It is removed when the value
/// is dropped before a transaction refers to it.
pub struct Pending {
    claim: Option<InFlightId>,
    /// The failures of earlier syncs, which do not concern this file.
    since: FailureCount,
    /// Whether dropping this value removes the file.
    remove: bool,
}

/// An id that is in flight while this value lives.
struct InFlightId {
    id: FileId,
    directory: Arc<Directory>,
}

impl Pending {
    /// Returns the id of the file.
    pub fn id(&self) -> &FileId {
        &self.claim.as_ref().expect("only drop takes the id").id
    }

    /// Must be called before a transaction that refers to the file is sent. It may be committed although its result is
    /// lost, so from here on dropping this value leaves the file to the sweep, which checks the rows.
    pub fn leave_to_sweep(&mut self) {
        self.remove = false;
    }

    /// Keeps the file. Must be called after the row is committed: from here on the sweep trusts the rows alone.
    pub fn keep(mut self) {
        self.remove = false;
    }

    /// Removes the file, because the transaction was certainly rolled back.
    pub fn discard(mut self) {
        self.remove = true;
    }

    /// Puts an id in flight before its file exists; `None` when it is in flight already.
    pub(super) fn claim(directory: &Arc<Directory>, id: FileId) -> Option<Pending> {
        let (claimed, since) = (directory.in_flight().insert(id.clone()), directory.since(&id));
        claimed.then(|| Pending { claim: Some(InFlightId { id, directory: directory.clone() }), since, remove: false })
    }

    /// Returns the failure count at the time of creation.
    pub(super) fn since(&self) -> FailureCount {
        self.since
    }

    /// Records that the file exists, so that dropping this value removes it.
    pub(super) fn with_file(mut self) -> Pending {
        self.remove = true;
        self
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let claim = self.claim.take();
        if let (true, Some(claim)) = (self.remove, claim) {
            // Removing a large file takes too long for a thread of the runtime.
            match Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn_blocking(move || claim.remove())),
                Err(_) => claim.remove(),
            }
        }
    }
}

impl InFlightId {
    fn remove(self) {
        if let Err(error) = self.directory.remove(&self.id) {
            tracing::warn!(file = %self.id, %error, "an unused file could not be removed and is left to the sweep");
        }
    }
}

impl Drop for InFlightId {
    fn drop(&mut self) {
        self.directory.in_flight().remove(&self.id);
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("id", self.id()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tarn_store::testing::SeededIds;

    use super::*;

    /// Ends a pending file and returns whether it is on disk and in flight afterwards.
    fn after(end: impl FnOnce(Pending)) -> (bool, bool) {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(&dir.path().join("objects"), 0, Arc::new(SeededIds::new(3))).unwrap();
        let directory = Arc::new(directory);
        let (_, pending) = directory.create().unwrap();
        let id = pending.id().clone();
        // Without a runtime, the removal is complete when this returns.
        end(pending);
        let there = directory.open_file(&id).is_ok();
        (there, directory.in_flight().contains(&id))
    }

    /// Only files that were never referenced, or whose transaction was rolled back, are removed.
    #[test]
    fn unreferenced_files_are_removed() {
        assert_eq!(after(drop), (false, false));
        assert_eq!(after(Pending::keep), (true, false));
        assert_eq!(after(Pending::discard), (false, false));
        let undecided = |mut pending: Pending| {
            pending.leave_to_sweep();
            pending
        };
        assert_eq!(after(|pending| drop(undecided(pending))), (true, false), "the sweep will ask the rows");
        assert_eq!(after(|pending| undecided(pending).keep()), (true, false));
        assert_eq!(after(|pending| undecided(pending).discard()), (false, false));
    }
}
