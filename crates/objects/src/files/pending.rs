//! Files that no row names yet: they are in flight, and removed again unless they are kept.

use std::fmt;
use std::sync::Arc;

use tarn_model::ids::FileId;
use tokio::runtime::Handle;

use super::directory::Directory;
use super::sync_rounds::Since;

/// A durable file that no row names yet, which the sweep lets be while this lives. Dropped before a transaction names it, it
/// is removed again.
pub struct Pending {
    claim: Option<Claim>,
    /// From when on a failure to make names durable may be about this one.
    since: Since,
    /// Whether the file goes with this.
    remove: bool,
}

/// An id that is in flight for as long as this lives.
struct Claim {
    id: FileId,
    directory: Arc<Directory>,
}

impl Pending {
    /// The id of the file.
    pub fn id(&self) -> &FileId {
        &self.claim.as_ref().expect("only dropping takes it").id
    }

    /// A transaction that names the file is about to be sent. It may be committed although nobody hears of it any more, so
    /// from here on dropping this leaves the file where it is, and the sweep asks the rows.
    pub fn undecided(&mut self) {
        self.remove = false;
    }

    /// A row names the file now. To be called after the row is committed: from here on the sweep trusts the rows alone.
    pub fn keep(mut self) {
        self.remove = false;
    }

    /// The transaction was taken back for certain: the file is removed.
    pub fn refused(mut self) {
        self.remove = true;
    }

    /// Puts an id in flight, before there is a file; `None` when it is already.
    pub(super) fn claim(directory: &Arc<Directory>, id: FileId) -> Option<Pending> {
        let (claimed, since) = (directory.in_flight().insert(id.clone()), directory.since(&id));
        claimed.then(|| Pending { claim: Some(Claim { id, directory: directory.clone() }), since, remove: false })
    }

    /// From when on failures matter.
    pub(super) fn since(&self) -> Since {
        self.since
    }

    /// There is a file now.
    pub(super) fn made(mut self) -> Pending {
        self.remove = true;
        self
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let claim = self.claim.take();
        if let (true, Some(claim)) = (self.remove, claim) {
            // To remove a large file takes its time, which a thread of the runtime does not have.
            match Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn_blocking(move || claim.remove())),
                Err(_) => claim.remove(),
            }
        }
    }
}

impl Claim {
    fn remove(self) {
        if let Err(error) = self.directory.remove(&self.id) {
            tracing::warn!(file = %self.id, %error, "a file that nobody wants is left to the sweep");
        }
    }
}

impl Drop for Claim {
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

    /// A file that is pending, and whether it is on the disk and in flight after it has come to an end.
    fn after(end: impl FnOnce(Pending)) -> (bool, bool) {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(&place.path().join("objects"), 0, Arc::new(SeededIds::new(3))).unwrap();
        let directory = Arc::new(directory);
        let (_, pending) = directory.create().unwrap();
        let id = pending.id().clone();
        // There is no runtime here, so the removal has happened when this returns.
        end(pending);
        let there = directory.open_file(&id).is_ok();
        (there, directory.in_flight().contains(&id))
    }

    #[test]
    fn only_what_was_never_named_or_was_refused_is_removed() {
        assert_eq!(after(drop), (false, false));
        assert_eq!(after(Pending::keep), (true, false));
        assert_eq!(after(Pending::refused), (false, false));
        let undecided = |mut pending: Pending| {
            pending.undecided();
            pending
        };
        assert_eq!(after(|pending| drop(undecided(pending))), (true, false), "the sweep will ask the rows");
        assert_eq!(after(|pending| undecided(pending).keep()), (true, false));
        assert_eq!(after(|pending| undecided(pending).refused()), (false, false));
    }
}
