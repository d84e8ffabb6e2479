//! The threads that count sums. A body is a line of chunks; the chunks of a line are counted in their order, and those of
//! different lines side by side.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::lanes::LANES;
use super::{Digests, Sums, Totals};

/// Threads beyond this many would only take the cores away from what feeds them.
const MOST_THREADS: usize = 8;

/// The threads; they end when this is dropped.
pub(in crate::files) struct Hashers(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Lines that have chunks and are not in the hands of a thread.
    ready: VecDeque<Arc<Mutex<State>>>,
    closing: bool,
}

struct State {
    /// What was counted; a thread has it while it counts.
    totals: Option<Totals>,
    chunks: VecDeque<Bytes>,
    /// Whether the line is ready or in the hands of a thread.
    busy: bool,
    /// Who waits for the end.
    asker: Option<oneshot::Sender<Digests>>,
}

/// One body, as those who bring its chunks see it.
pub(in crate::files) struct Line {
    state: Arc<Mutex<State>>,
    shared: Arc<Shared>,
}

impl Hashers {
    /// Starts a thread for every core.
    pub(in crate::files) fn start() -> io::Result<Hashers> {
        let hashers = Hashers(Arc::default());
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS) {
            let shared = hashers.0.clone();
            std::thread::Builder::new().name("tarn-sums".into()).spawn(move || work(&shared))?;
        }
        Ok(hashers)
    }

    /// A new body.
    pub(in crate::files) fn line(&self, wanted: Sums) -> Line {
        let state = State { totals: Some(Totals::new(wanted)), chunks: VecDeque::new(), busy: false, asker: None };
        Line { state: Arc::new(Mutex::new(state)), shared: self.0.clone() }
    }
}

impl Drop for Hashers {
    fn drop(&mut self) {
        lock(&self.0.queue).closing = true;
        self.0.wake.notify_all();
    }
}

impl Line {
    /// Brings the next chunk. How many may wait is for the caller to limit.
    pub(in crate::files) fn push(&self, chunk: Bytes) {
        let mut state = lock(&self.state);
        state.chunks.push_back(chunk);
        if !std::mem::replace(&mut state.busy, true) {
            drop(state);
            lock(&self.shared.queue).ready.push_back(self.state.clone());
            self.shared.wake.notify_one();
        }
    }

    /// The sums, when all chunks are counted.
    pub(in crate::files) async fn finish(self) -> io::Result<Digests> {
        let answer = {
            let mut state = lock(&self.state);
            if !state.busy {
                let totals = state.totals.take().expect("only a thread takes the totals, and it brings them back");
                return Ok(totals.finish());
            }
            let (asker, answer) = oneshot::channel();
            state.asker = Some(asker);
            answer
        };
        answer.await.map_err(|_| io::Error::other("the threads that count sums have ended"))
    }
}

fn work(shared: &Shared) {
    loop {
        let lines: Vec<_> = {
            let mut queue = lock(&shared.queue);
            while queue.ready.is_empty() {
                if queue.closing {
                    return;
                }
                queue = shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            // The longer the queue, the more lines are counted at once: the busier, the cheaper.
            let taken = queue.ready.len().min(LANES);
            let lines = queue.ready.drain(..taken).collect();
            if !queue.ready.is_empty() {
                shared.wake.notify_one();
            }
            lines
        };
        count(&lines);
        for line in lines {
            put_back(shared, line);
        }
    }
}

/// Counts the first chunk of every line.
fn count(lines: &[Arc<Mutex<State>>]) {
    let mut taken: Vec<(Totals, Bytes)> = lines
        .iter()
        .map(|line| {
            let mut state = lock(line);
            let totals = state.totals.take().expect("a line is in one thread's hands at a time");
            (totals, state.chunks.pop_front().expect("a line is ready only while it has chunks"))
        })
        .collect();
    Totals::update_many(&mut taken.iter_mut().map(|(totals, chunk)| (totals, &chunk[..])).collect::<Vec<_>>());
    for (line, (totals, _)) in lines.iter().zip(taken) {
        lock(line).totals = Some(totals);
    }
}

/// Lets go of a line, or puts it to the end of the queue when it has more chunks.
fn put_back(shared: &Shared, line: Arc<Mutex<State>>) {
    let mut state = lock(&line);
    if !state.chunks.is_empty() {
        drop(state);
        // Nobody is woken for it: this thread looks at the queue next.
        lock(&shared.queue).ready.push_back(line);
        return;
    }
    state.busy = false;
    if let Some(asker) = state.asker.take() {
        let totals = state.totals.take().expect("they were just brought back");
        // Who asked may have gone, and then nobody wants the sums.
        let _ = asker.send(totals.finish());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
