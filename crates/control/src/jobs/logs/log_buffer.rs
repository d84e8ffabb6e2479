//! Output of the nodes that is not stored yet. Pure: it knows neither streams nor the database.
//!
//! The output of a single node is ready at once, unless there is so much that larger pieces are better. With several
//! nodes, lines are kept whole where possible: the part after the last line end waits for its rest, for a limited time
//! and up to a limited size.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tarn_base::fair_share::Permit;
use tarn_model::ids::JobId;
use tokio::time::Instant;

/// How long a partial line waits for its rest.
const LINE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a partial line may become.
const LINE_LIMIT: usize = 64 << 10;

/// From this size on a piece is stored as an object.
pub(super) const LARGE_PIECE: usize = 256 << 10;

/// After a batch of this size more output is expected, and the next batch is delayed so that it becomes a large piece.
const BURST_BYTES: usize = 64 << 10;
const BURST_DELAY: Duration = Duration::from_millis(50);

/// The output of all nodes that is not stored yet.
pub(in crate::jobs) struct LogBuffer {
    /// The bytes that may be stored, in order.
    ready: Vec<Bytes>,
    ready_bytes: usize,
    /// The time until which output is collected after a burst.
    batch_until: Option<Instant>,
    nodes: Vec<NodeBuffer>,
    memory: Option<Permit<JobId>>,
}

struct NodeBuffer {
    /// How many bytes of this node are ready or were taken.
    offset: u64,
    /// The bytes after the last line end.
    partial_line: BytesMut,
    /// When the partial line becomes ready without its rest.
    flush_at: Option<Instant>,
}

/// The output that is stored in one transaction.
pub(in crate::jobs) struct LogBatch {
    /// The bytes of all nodes.
    pub(in crate::jobs) data: Bytes,
    /// The offset of each node after these bytes.
    pub(super) offsets: Vec<u64>,
    _memory: Option<Permit<JobId>>,
}

impl LogBuffer {
    /// Creates an empty buffer; the nodes' output is stored up to the given offsets.
    pub(in crate::jobs) fn new(offsets: impl Iterator<Item = u64>) -> Self {
        let nodes =
            offsets.map(|offset| NodeBuffer { offset, partial_line: BytesMut::new(), flush_at: None }).collect();
        LogBuffer { ready: Vec::new(), ready_bytes: 0, batch_until: None, nodes, memory: None }
    }

    pub(in crate::jobs) fn buffered_bytes(&self) -> usize {
        self.ready_bytes + self.nodes.iter().map(|node| node.partial_line.len()).sum::<usize>()
    }

    /// Adds output of a node.
    pub(in crate::jobs) fn push(&mut self, at: usize, data: Bytes, memory: Permit<JobId>, now: Instant) {
        match &mut self.memory {
            Some(held) => held.merge(memory),
            none => *none = Some(memory),
        }
        if self.nodes.len() == 1 {
            return self.add_ready(at, data);
        }
        let partial_line = &mut self.nodes[at].partial_line;
        partial_line.extend_from_slice(&data);
        let whole = match partial_line.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => partial_line.split_to(end + 1).freeze(),
            None => Bytes::new(),
        };
        let flush_at = (!partial_line.is_empty()).then_some(now + LINE_TIMEOUT);
        let is_long = partial_line.len() >= LINE_LIMIT;
        let node = &mut self.nodes[at];
        // A line that grows slowly keeps its first deadline.
        node.flush_at = if whole.is_empty() { node.flush_at.or(flush_at) } else { flush_at };
        self.add_ready(at, whole);
        if is_long {
            self.flush_line(at);
        }
    }

    /// Returns the next time at which [`LogBuffer::flush_due`] has an effect.
    pub(in crate::jobs) fn next_flush(&self) -> Option<Instant> {
        self.nodes.iter().filter_map(|node| node.flush_at).chain(self.batch_until).min()
    }

    /// Makes output ready whose delay is over.
    pub(in crate::jobs) fn flush_due(&mut self, now: Instant) {
        self.batch_until = self.batch_until.filter(|until| *until > now);
        for at in 0..self.nodes.len() {
            if self.nodes[at].flush_at.is_some_and(|flush_at| flush_at <= now) {
                self.flush_line(at);
            }
        }
    }

    /// Makes the partial line of a node ready.
    pub(in crate::jobs) fn flush_line(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.flush_at = None;
        let partial_line = node.partial_line.split().freeze();
        self.add_ready(at, partial_line);
    }

    /// Takes the output that is ready, unless it is delayed after a burst.
    pub(in crate::jobs) fn take_ready(&mut self, now: Instant) -> Option<LogBatch> {
        let is_batching = self.ready_bytes < LARGE_PIECE && self.batch_until.is_some_and(|until| until > now);
        if self.ready_bytes == 0 || is_batching {
            return None;
        }
        self.batch_until = (self.ready_bytes >= BURST_BYTES).then(|| now + BURST_DELAY);
        Some(self.take_all_ready())
    }

    /// Takes all output that is ready, which may be nothing.
    pub(in crate::jobs) fn take_all_ready(&mut self) -> LogBatch {
        let data = match self.ready.len() {
            1 => self.ready.remove(0),
            _ => self.ready.drain(..).fold(BytesMut::with_capacity(self.ready_bytes), append_piece).freeze(),
        };
        let taken = std::mem::take(&mut self.ready_bytes);
        let offsets = self.nodes.iter().map(|node| node.offset).collect();
        let left = self.nodes.iter().any(|node| !node.partial_line.is_empty());
        let memory = match (left, &mut self.memory) {
            (true, Some(held)) => held.split(taken),
            (_, memory) => memory.take(),
        };
        LogBatch { data, offsets, _memory: memory }
    }

    fn add_ready(&mut self, at: usize, data: Bytes) {
        if !data.is_empty() {
            self.nodes[at].offset += data.len() as u64;
            self.ready_bytes += data.len();
            self.ready.push(data);
        }
    }
}

fn append_piece(mut all: BytesMut, piece: Bytes) -> BytesMut {
    all.extend_from_slice(&piece);
    all
}

#[cfg(test)]
mod tests {
    use tarn_base::fair_share::FairShare;

    use super::*;

    const MEMORY: usize = 1 << 20;

    struct Scene {
        buffer: LogBuffer,
        memory: FairShare<JobId>,
        job: JobId,
        now: Instant,
    }

    impl Scene {
        fn of(nodes: usize) -> Self {
            let (buffer, job) = (LogBuffer::new((0..nodes).map(|_| 0)), "j-000000000001".parse().unwrap());
            Scene { buffer, memory: FairShare::new(MEMORY, MEMORY), job, now: Instant::now() }
        }

        async fn push(&mut self, at: usize, text: &str) {
            let held = self.memory.acquire(&self.job, text.len()).await;
            self.buffer.push(at, Bytes::copy_from_slice(text.as_bytes()), held, self.now);
        }

        fn take(&mut self) -> Option<(String, Vec<u64>)> {
            let batch = self.buffer.take_ready(self.now)?;
            Some((String::from_utf8(batch.data.to_vec()).unwrap(), batch.offsets.clone()))
        }

        fn has_returned_memory(&self) -> bool {
            self.memory.try_acquire(&self.job, MEMORY).is_ok()
        }
    }

    /// The output of a single node is ready at once.
    #[tokio::test]
    async fn single_node_output_is_ready_at_once() {
        let mut scene = Scene::of(1);
        scene.push(0, "half").await;
        scene.push(0, " a line").await;
        assert_eq!(scene.take(), Some(("half a line".into(), vec![11])));
        assert_eq!(scene.take(), None);
        assert!(scene.has_returned_memory());
    }

    /// Bursts become large pieces after a short delay.
    #[tokio::test]
    async fn bursts_become_large_pieces() {
        let mut scene = Scene::of(1);
        scene.push(0, &"x".repeat(BURST_BYTES)).await;
        assert!(scene.take().is_some(), "the first of it goes on at once");
        scene.push(0, "more").await;
        assert_eq!(scene.take(), None);
        let flush_at = scene.buffer.next_flush().unwrap();
        scene.now = flush_at;
        scene.buffer.flush_due(flush_at);
        assert_eq!(scene.buffer.next_flush(), None);
        assert_eq!(scene.take(), Some(("more".into(), vec![BURST_BYTES as u64 + 4])));
        scene.push(0, "little").await;
        assert!(scene.take().is_some(), "a small piece causes no delay");
        scene.push(0, &"x".repeat(BURST_BYTES)).await;
        assert!(scene.take().is_some());
        scene.push(0, &"x".repeat(LARGE_PIECE)).await;
        assert!(scene.take().is_some(), "a large piece is ready at once");
    }

    /// The lines of several nodes stay whole.
    #[tokio::test]
    async fn lines_of_several_nodes_stay_whole() {
        let mut scene = Scene::of(2);
        scene.push(0, "one\ntw").await;
        scene.push(1, "eins\n").await;
        assert_eq!(scene.take(), Some(("one\neins\n".into(), vec![4, 5])));
        scene.push(0, "o\nthree").await;
        assert_eq!(scene.take(), Some(("two\n".into(), vec![8, 5])));
        assert_eq!((scene.take(), scene.buffer.buffered_bytes()), (None, 5));
        scene.buffer.flush_line(0);
        assert_eq!(scene.take(), Some(("three".into(), vec![13, 5])));
        assert!(scene.has_returned_memory(), "all memory is given back");
    }

    /// A partial line is flushed after a timeout or at a size limit.
    #[tokio::test]
    async fn partial_line_is_flushed() {
        let mut scene = Scene::of(2);
        scene.push(1, "progress 1%").await;
        let flush_at = scene.buffer.next_flush().unwrap();
        scene.now += LINE_TIMEOUT / 2;
        scene.push(1, "\rprogress 2%").await;
        assert_eq!(scene.buffer.next_flush(), Some(flush_at), "it does not wait anew");
        scene.buffer.flush_due(scene.now);
        assert_eq!(scene.take(), None);
        scene.buffer.flush_due(flush_at);
        assert_eq!(scene.take(), Some(("progress 1%\rprogress 2%".into(), vec![0, 23])));
        scene.push(0, &"x".repeat(LINE_LIMIT)).await;
        assert!(scene.take().is_some_and(|(text, _)| text.len() == LINE_LIMIT), "nor does it grow without limit");
    }
}
