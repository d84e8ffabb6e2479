//! The threads that compute sums. A body is a queue of chunks. Its chunks are hashed in order, and those of different
//! bodies in parallel.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::lanes::LANES;
use super::{Digests, Sums, Totals};

/// More threads would only take the cores away from the tasks that feed them.
const MAX_THREADS: usize = 8;

/// The threads. They end when this is dropped.
pub(in crate::files) struct Hashers(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Bodies that have chunks and that no thread processes.
    ready: VecDeque<Arc<Mutex<State>>>,
    closing: bool,
}

struct State {
    /// The sums so far; a thread takes them while it hashes.
    totals: Option<Totals>,
    chunks: VecDeque<Bytes>,
    /// Whether the body is queued or processed by a thread.
    busy: bool,
    /// The caller that waits for the result.
    waiter: Option<oneshot::Sender<Digests>>,
}

/// The sums of one body, as its producer sees them.
pub(in crate::files) struct BodySums {
    state: Arc<Mutex<State>>,
    shared: Arc<Shared>,
}

impl Hashers {
    /// Starts a thread for every core.
    pub(in crate::files) fn start() -> io::Result<Hashers> {
        let hashers = Hashers(Arc::default());
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS) {
            let shared = hashers.0.clone();
            std::thread::Builder::new().name("tarn-sums".into()).spawn(move || run_hasher(&shared))?;
        }
        Ok(hashers)
    }

    /// Starts a new body.
    pub(in crate::files) fn start_body(&self, wanted: Sums) -> BodySums {
        let state = State { totals: Some(Totals::new(wanted)), chunks: VecDeque::new(), busy: false, waiter: None };
        BodySums { state: Arc::new(Mutex::new(state)), shared: self.0.clone() }
    }
}

impl Drop for Hashers {
    fn drop(&mut self) {
        lock(&self.0.queue).closing = true;
        self.0.wake.notify_all();
    }
}

impl BodySums {
    /// Queues the next chunk. The caller limits the number of queued chunks.
    pub(in crate::files) fn push(&self, chunk: Bytes) {
        let mut state = lock(&self.state);
        state.chunks.push_back(chunk);
        if !std::mem::replace(&mut state.busy, true) {
            drop(state);
            lock(&self.shared.queue).ready.push_back(self.state.clone());
            self.shared.wake.notify_one();
        }
    }

    /// Returns the sums when all chunks are hashed.
    pub(in crate::files) async fn finish(self) -> io::Result<Digests> {
        let result = {
            let mut state = lock(&self.state);
            if !state.busy {
                let totals = state.totals.take().expect("only a thread takes the totals, and it puts them back");
                return Ok(totals.finish());
            }
            let (waiter, result) = oneshot::channel();
            state.waiter = Some(waiter);
            result
        };
        result.await.map_err(|_| io::Error::other("the threads that compute sums have ended"))
    }
}

fn run_hasher(shared: &Shared) {
    loop {
        let bodies: Vec<_> = {
            let mut queue = lock(&shared.queue);
            while queue.ready.is_empty() {
                if queue.closing {
                    return;
                }
                shared.wake.wait(&mut queue);
            }
            // The longer the queue, the more bodies are hashed together, at a lower cost per body.
            let taken = queue.ready.len().min(LANES);
            let bodies = queue.ready.drain(..taken).collect();
            if !queue.ready.is_empty() {
                shared.wake.notify_one();
            }
            bodies
        };
        hash_first_chunks(&bodies);
        for body in bodies {
            requeue_or_finish(shared, body);
        }
    }
}

/// Hashes the first chunk of every body.
fn hash_first_chunks(bodies: &[Arc<Mutex<State>>]) {
    let mut taken: Vec<(Totals, Bytes)> = bodies
        .iter()
        .map(|body| {
            let mut state = lock(body);
            let totals = state.totals.take().expect("one thread at a time processes a body");
            (totals, state.chunks.pop_front().expect("a body is ready only while it has chunks"))
        })
        .collect();
    Totals::update_many(&mut taken.iter_mut().map(|(totals, chunk)| (totals, &chunk[..])).collect::<Vec<_>>());
    for (body, (totals, _)) in bodies.iter().zip(taken) {
        lock(body).totals = Some(totals);
    }
}

/// Queues a body again when it has more chunks; otherwise reports its sums to the caller that waits for them.
fn requeue_or_finish(shared: &Shared, body: Arc<Mutex<State>>) {
    let mut state = lock(&body);
    if !state.chunks.is_empty() {
        drop(state);
        // No thread is woken for it: this one checks the queue next.
        lock(&shared.queue).ready.push_back(body);
        return;
    }
    state.busy = false;
    if let Some(waiter) = state.waiter.take() {
        let totals = state.totals.take().expect("they were just put back");
        // The caller may have stopped waiting.
        let _ = waiter.send(totals.finish());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
