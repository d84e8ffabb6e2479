//! Buffers that are used again: neither zeroed nor faulted in a second time. Files and streams are not known here.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedSemaphorePermit;

/// How large every buffer is: large enough that a system call hardly counts, small enough that a stream may have four.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

/// How many unused buffers are kept for later, 8 MiB in all.
const KEPT: usize = 32;

/// The buffers that nobody uses now.
#[derive(Default)]
pub(super) struct Buffers(Mutex<Vec<Box<[u8]>>>);

impl Buffers {
    /// A buffer with nothing in it. The permit, if any, is given back when the buffer is.
    pub(super) fn take(self: &Arc<Self>, permit: Option<OwnedSemaphorePermit>) -> Buffer {
        let memory = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let memory = memory.unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice());
        Buffer { memory, used: 0, home: self.clone(), _permit: permit }
    }
}

/// A buffer in use; what is seen of it is what was put in.
pub(super) struct Buffer {
    memory: Box<[u8]>,
    used: usize,
    home: Arc<Buffers>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Buffer {
    /// Takes as much of the piece as there is room for, and says how much that was.
    pub(super) fn append(&mut self, piece: &[u8]) -> usize {
        let room = &mut self.memory[self.used..];
        let taken = room.len().min(piece.len());
        room[..taken].copy_from_slice(&piece[..taken]);
        self.used += taken;
        taken
    }

    /// Whether there is no more room.
    pub(super) fn is_full(&self) -> bool {
        self.used == self.memory.len()
    }

    /// Lets `fill` write to the first `wanted` bytes; it says how many of them count from now on.
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
        let mut kept = self.home.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT {
            kept.push(memory);
        }
    }
}
