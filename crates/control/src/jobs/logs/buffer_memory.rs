//! The memory for output on its way to the database: every job has a share of its own, so that one that floods keeps nobody
//! else waiting, and all together have a limit.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How much all jobs together may have, and how much one of them.
const ALL: usize = 256 << 20;
const OWN: usize = 16 << 20;

/// What all jobs share.
#[derive(Clone)]
pub(super) struct Memory(Arc<Semaphore>);

impl Default for Memory {
    fn default() -> Self {
        Memory(Arc::new(Semaphore::new(ALL)))
    }
}

/// What one job may use of it.
#[derive(Clone)]
pub(super) struct Share {
    own: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

/// Memory that is in use.
#[derive(Debug)]
pub(super) struct Held {
    own: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
}

impl Memory {
    /// The share of a job.
    pub(super) fn share(&self) -> Share {
        Share { own: Arc::new(Semaphore::new(OWN)), all: self.0.clone() }
    }
}

impl Share {
    /// Waits for so many bytes, which are less than a job may have. Its own share comes first: who waits for that holds nothing
    /// that others want.
    pub(super) async fn take(&self, bytes: usize) -> Option<Held> {
        let bytes = u32::try_from(bytes).ok()?;
        let own = self.own.clone().acquire_many_owned(bytes).await.ok()?;
        let all = self.all.clone().acquire_many_owned(bytes).await.ok()?;
        Some(Held { own, all })
    }

    /// How many bytes the job may still have.
    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.own.available_permits()
    }
}

impl Held {
    /// Adds what else is in use by the same job.
    pub(super) fn merge(&mut self, other: Held) {
        self.own.merge(other.own);
        self.all.merge(other.all);
    }

    /// Takes so many bytes out of it; `None` if it has not as many.
    pub(super) fn split(&mut self, bytes: usize) -> Option<Held> {
        Some(Held { own: self.own.split(bytes)?, all: self.all.split(bytes)? })
    }
}
