//! Writing one body, beside the task that receives it. Nothing here knows sums.
//!
//! Chunks are queued, and one blocking thread at a time writes them. The end of the body is the last entry of the
//! queue, so that a small file is created, written and synced in one run.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::draft::Draft;
use crate::files::directory::Directory;
use crate::files::pending::Pending;

/// The number of queued chunks that starts a thread before the body has ended.
const CHUNKS_PER_WAKE: usize = 2;

pub(in crate::files) struct Writer(Arc<Shared>);

struct Shared {
    directory: Arc<Directory>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    chunks: VecDeque<Bytes>,
    /// The file, while no thread writes it.
    draft: Option<Draft>,
    running: bool,
    /// The error that stopped writing. The first caller that sees it takes it, and leaves a general one.
    failed: Option<io::Error>,
    /// Whether the body was dropped.
    abandoned: bool,
    waiter: Option<oneshot::Sender<io::Result<Pending>>>,
}

impl Writer {
    pub(in crate::files) fn new(directory: &Arc<Directory>) -> Writer {
        Writer(Arc::new(Shared { directory: directory.clone(), state: Mutex::default() }))
    }

    /// Queues the next chunk. The caller limits the number of queued chunks. An error is that of an earlier chunk.
    pub(in crate::files) fn push(&self, chunk: Bytes) -> io::Result<()> {
        let mut state = self.0.lock();
        state.take_failure()?;
        state.chunks.push_back(chunk);
        if state.chunks.len() >= CHUNKS_PER_WAKE {
            self.0.wake(state);
        }
        Ok(())
    }

    /// Finishes the body with its last chunk, and returns when the file is on disk.
    pub(in crate::files) async fn finish(self, last: Option<Bytes>) -> io::Result<Pending> {
        let result = {
            let mut state = self.0.lock();
            state.take_failure()?;
            state.chunks.extend(last);
            let (waiter, result) = oneshot::channel();
            state.waiter = Some(waiter);
            self.0.wake(state);
            result
        };
        result.await.unwrap_or_else(|_| Err(io::Error::other("the thread that wrote the file has ended")))
    }
}

impl Drop for Writer {
    /// Has no effect after the end of the body was reported.
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.abandoned = true;
        let draft = state.draft.take();
        drop(state);
        drop(draft);
    }
}

impl State {
    fn take_failure(&mut self) -> io::Result<()> {
        match &mut self.failed {
            None => Ok(()),
            Some(error) => Err(std::mem::replace(error, io::Error::other("the body could not be written"))),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Starts a thread, unless one is running and will see the new chunks.
    fn wake(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if !std::mem::replace(&mut state.running, true) {
            let draft = state.draft.take();
            drop(state);
            let shared = self.clone();
            tokio::task::spawn_blocking(move || shared.write_pending_chunks(draft));
        }
    }

    /// Writes queued chunks until there are none.
    fn write_pending_chunks(&self, mut draft: Option<Draft>) {
        loop {
            let chunks: Vec<Bytes> = {
                let mut state = self.lock();
                if state.abandoned {
                    state.chunks.clear();
                    return;
                }
                let chunks: Vec<_> = state.chunks.drain(..).collect();
                if chunks.is_empty() {
                    let Some(waiter) = state.waiter.take() else {
                        state.running = false;
                        state.draft = draft;
                        return;
                    };
                    drop(state);
                    // A result without a receiver is dropped, which removes the file.
                    let _ = waiter.send(self.take_or_create(&mut draft).and_then(Draft::finish));
                    return;
                }
                chunks
            };
            let written = self.take_or_create(&mut draft).and_then(|mut taken| {
                taken.write(&chunks)?;
                draft = Some(taken);
                Ok(())
            });
            if let Err(error) = written {
                return self.record_failure(error);
            }
        }
    }

    fn take_or_create(&self, draft: &mut Option<Draft>) -> io::Result<Draft> {
        draft.take().map_or_else(|| Draft::create(&self.directory), Ok)
    }

    /// Leaves the queue closed: `running` stays set, so that no thread starts again.
    fn record_failure(&self, error: io::Error) {
        let mut state = self.lock();
        state.chunks.clear();
        match state.waiter.take() {
            // The caller may have stopped waiting.
            Some(waiter) => drop(waiter.send(Err(error))),
            None => state.failed = Some(error),
        }
    }
}
