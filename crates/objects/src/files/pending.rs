//! Files that no row names yet: they are in flight, and removed again unless they are kept.

use std::fmt;
use std::sync::Arc;

use tarn_model::ids::FileId;
use tokio::runtime::Handle;

use super::directory::Directory;

/// A durable file that no row names yet. Dropped without [`Pending::keep`], it is removed again; until then the sweep lets
/// it be.
pub struct Pending {
    claim: Option<Claim>,
    /// Whether there is a file to remove.
    made: bool,
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

    /// A row names the file now. To be called after the row is committed: from here on the sweep trusts the rows alone.
    pub fn keep(mut self) {
        self.made = false;
    }

    /// Puts an id in flight, before there is a file; `None` when it is already.
    pub(super) fn claim(directory: &Arc<Directory>, id: FileId) -> Option<Pending> {
        let claimed = directory.in_flight().insert(id.clone());
        claimed.then(|| Pending { claim: Some(Claim { id, directory: directory.clone() }), made: false })
    }

    /// There is a file now.
    pub(super) fn made(mut self) -> Pending {
        self.made = true;
        self
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let claim = self.claim.take();
        if let (true, Some(claim)) = (self.made, claim) {
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
