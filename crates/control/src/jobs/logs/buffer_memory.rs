//! The memory for output that is not stored yet. Every job has its own share, so a job that floods delays no other, and
//! all jobs together have a limit.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How much memory all jobs together may use, and how much one job.
const MAX_TOTAL_BYTES: usize = 256 << 20;
const MAX_JOB_BYTES: usize = 16 << 20;

/// The memory of all jobs.
#[derive(Clone)]
pub(in crate::jobs) struct BufferMemory(Arc<Semaphore>);

impl Default for BufferMemory {
    fn default() -> Self {
        BufferMemory(Arc::new(Semaphore::new(MAX_TOTAL_BYTES)))
    }
}

/// The share of one job.
#[derive(Clone)]
pub(in crate::jobs) struct JobMemory {
    own: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

/// The permit for memory in use.
#[derive(Debug)]
pub(in crate::jobs) struct MemoryPermit {
    own: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
}

impl BufferMemory {
    /// Returns the share of a new job.
    pub(in crate::jobs) fn for_job(&self) -> JobMemory {
        JobMemory { own: Arc::new(Semaphore::new(MAX_JOB_BYTES)), all: self.0.clone() }
    }
}

impl JobMemory {
    /// Waits for a number of bytes, which must be less than the share of a job. The share is acquired first: a job that
    /// waits for its own share holds nothing that other jobs want.
    pub(in crate::jobs) async fn acquire(&self, bytes: usize) -> Option<MemoryPermit> {
        let bytes = u32::try_from(bytes).ok()?;
        let own = self.own.clone().acquire_many_owned(bytes).await.ok()?;
        let all = self.all.clone().acquire_many_owned(bytes).await.ok()?;
        Some(MemoryPermit { own, all })
    }

    /// Returns how many bytes of its share the job has left.
    #[cfg(test)]
    pub(super) fn available(&self) -> usize {
        self.own.available_permits()
    }
}

impl MemoryPermit {
    /// Adds another permit of the same job.
    pub(super) fn merge(&mut self, other: MemoryPermit) {
        self.own.merge(other.own);
        self.all.merge(other.all);
    }

    /// Splits off a permit for a number of bytes; `None` if this permit has fewer.
    pub(in crate::jobs) fn split(&mut self, bytes: usize) -> Option<MemoryPermit> {
        Some(MemoryPermit { own: self.own.split(bytes)?, all: self.all.split(bytes)? })
    }
}
