//! The writing of one body, beside the task that receives it. Sums are not known here.
//!
//! Chunks wait in a line, and one blocking thread at a time empties it. The end of the body is the last in the line, so that
//! a small file is made, written and synced in one go.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::draft::Draft;
use crate::files::directory::Directory;
use crate::files::pending::Pending;

/// How many chunks are worth waking a thread for, when the body has not ended.
const WORTHWHILE: usize = 2;

pub(in crate::files) struct Writer(Arc<Shared>);

struct Shared {
    directory: Arc<Directory>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    chunks: VecDeque<Bytes>,
    /// The file, while no thread has it.
    draft: Option<Draft>,
    running: bool,
    /// Why nothing is written any more; the one who hears of it first takes the reason.
    failed: Option<Option<io::Error>>,
    /// Nobody wants the file any more.
    abandoned: bool,
    asker: Option<oneshot::Sender<io::Result<Pending>>>,
}

impl Writer {
    pub(in crate::files) fn new(directory: &Arc<Directory>) -> Writer {
        Writer(Arc::new(Shared { directory: directory.clone(), state: Mutex::default() }))
    }

    /// Brings the next chunk. How many may wait is for the caller to limit. A failure is that of an earlier chunk.
    pub(in crate::files) fn push(&self, chunk: Bytes) -> io::Result<()> {
        let mut state = self.0.lock();
        state.check()?;
        state.chunks.push_back(chunk);
        if state.chunks.len() >= WORTHWHILE {
            self.0.wake(state);
        }
        Ok(())
    }

    /// Ends the body with its last chunk, and returns when the file is on disk.
    pub(in crate::files) async fn finish(self, last: Option<Bytes>) -> io::Result<Pending> {
        let answer = {
            let mut state = self.0.lock();
            state.check()?;
            state.chunks.extend(last);
            let (asker, answer) = oneshot::channel();
            state.asker = Some(asker);
            self.0.wake(state);
            answer
        };
        answer.await.unwrap_or_else(|_| Err(io::Error::other("the thread that wrote the file has ended")))
    }
}

impl Drop for Writer {
    /// After the end of the body has been answered this changes nothing.
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.abandoned = true;
        let draft = state.draft.take();
        drop(state);
        drop(draft);
    }
}

impl State {
    fn check(&mut self) -> io::Result<()> {
        match &mut self.failed {
            None => Ok(()),
            Some(reason) => Err(reason.take().unwrap_or_else(|| io::Error::other("the body could not be written"))),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a thread, unless one is at work and will see what is new.
    fn wake(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if !std::mem::replace(&mut state.running, true) {
            let draft = state.draft.take();
            drop(state);
            let shared = self.clone();
            tokio::task::spawn_blocking(move || shared.run(draft));
        }
    }

    /// Works until there is nothing to do.
    fn run(&self, mut draft: Option<Draft>) {
        loop {
            let chunks: Vec<Bytes> = {
                let mut state = self.lock();
                if state.abandoned {
                    state.chunks.clear();
                    return;
                }
                let chunks: Vec<_> = state.chunks.drain(..).collect();
                if chunks.is_empty() {
                    let Some(asker) = state.asker.take() else {
                        state.running = false;
                        state.draft = draft;
                        return;
                    };
                    drop(state);
                    // A file that nobody takes any more is removed with the answer.
                    let _ = asker.send(self.take_or_create(&mut draft).and_then(Draft::finish));
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
                return self.fail(error);
            }
        }
    }

    fn take_or_create(&self, draft: &mut Option<Draft>) -> io::Result<Draft> {
        draft.take().map_or_else(|| Draft::create(&self.directory), Ok)
    }

    /// Leaves the line closed: `running` stays, so that no thread starts again.
    fn fail(&self, error: io::Error) {
        let mut state = self.lock();
        state.chunks.clear();
        match state.asker.take() {
            // Who asked may have gone, and then nobody wants to know.
            Some(asker) => drop(asker.send(Err(error))),
            None => state.failed = Some(Some(error)),
        }
    }
}
