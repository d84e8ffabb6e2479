//! Many operations of one kind, on several connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;

use crate::client::{Call, Client, Target};
use crate::figures;

/// What an operation does.
#[derive(Clone, Copy, PartialEq)]
pub enum Verb {
    Put,
    Get,
    Delete,
}

/// What is done, and when it ends: after `count` operations, or when the time is up, whichever is first.
pub struct Work {
    verb: Verb,
    size: usize,
    connections: usize,
    count: usize,
    seconds: f64,
    name: Box<dyn Fn(usize) -> String + Send + Sync>,
}

impl Work {
    pub fn new(verb: Verb, size: usize, connections: usize) -> Self {
        let name = Box::new(move |number| format!("o{size}-{number}"));
        Self { verb, size, connections, count: usize::MAX, seconds: f64::INFINITY, name }
    }

    pub fn count(self, count: usize) -> Self {
        Self { count, ..self }
    }

    pub fn seconds(self, seconds: f64) -> Self {
        Self { seconds, ..self }
    }

    /// Takes the first `keys` names in turn.
    pub fn keys(self, keys: usize) -> Self {
        let name = self.name;
        Self { name: Box::new(move |number| name(number % keys)), ..self }
    }

    pub fn named(self, name: impl Fn(usize) -> String + Send + Sync + 'static) -> Self {
        Self { name: Box::new(name), ..self }
    }
}

/// Does the work and tells how long it took. The first error ends it.
pub async fn run(target: &Target, work: Work) -> Result<String, String> {
    let body = payload(if work.verb == Verb::Put { work.size } else { 0 });
    let (work, next, began) = (Arc::new(work), Arc::new(AtomicUsize::new(0)), Instant::now());
    let connection = |_| {
        let (target, work, next, body) = (target.clone(), work.clone(), next.clone(), body.clone());
        tokio::spawn(async move { one_connection(target, &work, &next, body, began).await })
    };
    let connections: Vec<_> = (0..work.connections).map(connection).collect();
    let mut milliseconds = Vec::new();
    for connection in connections {
        milliseconds.extend(connection.await.map_err(|error| error.to_string())??);
    }
    figures::line(milliseconds, began.elapsed().as_secs_f64())
}

async fn one_connection(
    target: Target,
    work: &Work,
    next: &AtomicUsize,
    body: Bytes,
    began: Instant,
) -> Result<Vec<f64>, String> {
    let bucket = target.bucket.clone();
    let mut client = Client::new(target).await?;
    let mut milliseconds = Vec::new();
    while began.elapsed().as_secs_f64() < work.seconds {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= work.count {
            break;
        }
        let method = match work.verb {
            Verb::Put => "PUT",
            Verb::Get => "GET",
            Verb::Delete => "DELETE",
        };
        let path = format!("/{bucket}/{}", (work.name)(number));
        let call = Call { method, path, query: String::new(), body: body.clone() };
        let (started, mut length) = (Instant::now(), 0);
        client.send(&call, |piece| length += piece.len()).await?;
        if work.verb == Verb::Get && length != work.size {
            return Err(format!("{} has {length} bytes", call.path));
        }
        milliseconds.push(started.elapsed().as_secs_f64() * 1e3);
    }
    Ok(milliseconds)
}

/// Bytes that no server can make smaller, the same in every run.
fn payload(size: usize) -> Bytes {
    let (mut bytes, mut state) = (vec![0; size], 88_172_645_463_325_252_u64);
    for piece in bytes.chunks_mut(8) {
        state = scramble(state);
        piece.copy_from_slice(&state.to_le_bytes()[..piece.len()]);
    }
    Bytes::from(bytes)
}

/// The next of a xorshift generator's numbers.
pub fn scramble(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ (state << 17)
}
