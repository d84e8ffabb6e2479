//! Reusable buffers: they are neither zeroed nor faulted in a second time. Nothing here knows files or streams.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

/// The size of every buffer: large enough that a system call hardly counts, small enough that a stream may have four.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

/// The maximum number of unused buffers, 8 MiB in all.
const MAX_UNUSED_BUFFERS: usize = 32;

/// The unused buffers.
#[derive(Default)]
pub(super) struct Buffers(Mutex<Vec<Box<[u8]>>>);

impl Buffers {
    /// Returns an empty buffer. The permit, if any, is released together with the buffer.
    pub(super) fn take_buffer(self: &Arc<Self>, permit: Option<OwnedSemaphorePermit>) -> Buffer {
        let memory = self.0.lock().pop();
        let memory = memory.unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice());
        Buffer { memory, used: 0, pool: self.clone(), _permit: permit }
    }
}

/// A buffer in use. Only the bytes that were written are visible.
pub(super) struct Buffer {
    memory: Box<[u8]>,
    used: usize,
    pool: Arc<Buffers>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Buffer {
    /// Copies as much of the piece as fits and returns its length.
    pub(super) fn append(&mut self, piece: &[u8]) -> usize {
        let room = &mut self.memory[self.used..];
        let taken = room.len().min(piece.len());
        room[..taken].copy_from_slice(&piece[..taken]);
        self.used += taken;
        taken
    }

    /// Returns whether the buffer is full.
    pub(super) fn is_full(&self) -> bool {
        self.used == self.memory.len()
    }

    /// Lets `fill` write to the first `wanted` bytes. It returns how many of them are valid.
    pub(super) fn fill<E>(
        &mut self,
        wanted: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let wanted = wanted.min(self.memory.len());
        self.used = fill(&mut self.memory[..wanted])?.min(wanted);
        Ok(self.used)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.used]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        let mut unused = self.pool.0.lock();
        if unused.len() < MAX_UNUSED_BUFFERS {
            unused.push(memory);
        }
    }
}
