//! What nodes wrote and what is not written down yet. Pure: it knows neither streams nor the database.
//!
//! Of one node everything goes on at once, unless there is so much that large pieces are better. Of several the lines are kept
//! whole as far as that goes: what follows the last end of a line waits for the rest of it, but not for ever, and not without
//! limit.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use super::memory::Held;

/// How long half a line waits for the rest of it.
const LINE_PATIENCE: Duration = Duration::from_secs(1);

/// How long half a line may become.
const LINE_LIMIT: usize = 64 << 10;

/// From this size on a piece is large: it is written down where large things are.
pub(super) const LARGE: usize = 256 << 10;

/// After so much at once more is expected, and how long is waited until it has become a large piece.
const MUCH: usize = 64 << 10;
const MUCH_PATIENCE: Duration = Duration::from_millis(50);

/// What was gathered.
pub(super) struct Gathered {
    /// What may be written down, in order.
    ready: Vec<Bytes>,
    ready_bytes: usize,
    /// Until when it waits for more, because there was much.
    waits: Option<Instant>,
    nodes: Vec<Node>,
    /// The share of the memory that all of this has.
    memory: Option<Held>,
}

struct Node {
    /// How many bytes of this node are ready or were taken.
    offset: u64,
    /// The beginning of a line.
    half: BytesMut,
    /// When that is ready all the same.
    due: Option<Instant>,
}

/// What is to be written down in one go.
pub(super) struct Batch {
    /// The bytes, of all nodes.
    pub(super) data: Bytes,
    /// How many bytes of each node are written down with them.
    pub(super) offsets: Vec<u64>,
    _memory: Option<Held>,
}

impl Gathered {
    /// Nothing, after so many bytes of each node.
    pub(super) fn new(offsets: impl Iterator<Item = u64>) -> Self {
        let nodes = offsets.map(|offset| Node { offset, half: BytesMut::new(), due: None }).collect();
        Gathered { ready: Vec::new(), ready_bytes: 0, waits: None, nodes, memory: None }
    }

    /// How many bytes there are.
    pub(super) fn bytes(&self) -> usize {
        self.ready_bytes + self.nodes.iter().map(|node| node.half.len()).sum::<usize>()
    }

    /// Adds what a node wrote.
    pub(super) fn push(&mut self, at: usize, data: Bytes, memory: Held, now: Instant) {
        match &mut self.memory {
            Some(held) => held.merge(memory),
            none => *none = Some(memory),
        }
        if self.nodes.len() == 1 {
            return self.add(at, data);
        }
        let half = &mut self.nodes[at].half;
        half.extend_from_slice(&data);
        let whole = match half.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => half.split_to(end + 1).freeze(),
            None => Bytes::new(),
        };
        let due = (!half.is_empty()).then_some(now + LINE_PATIENCE);
        let is_long = half.len() >= LINE_LIMIT;
        let node = &mut self.nodes[at];
        // A line that grows slowly does not wait anew with each piece.
        node.due = if whole.is_empty() { node.due.or(due) } else { due };
        self.add(at, whole);
        if is_long {
            self.flush(at);
        }
    }

    /// When something has waited long enough.
    pub(super) fn due(&self) -> Option<Instant> {
        self.nodes.iter().filter_map(|node| node.due).chain(self.waits).min()
    }

    /// Gives up waiting for more, and for the rest of lines, where that has taken long enough.
    pub(super) fn flush_due(&mut self, now: Instant) {
        self.waits = self.waits.filter(|until| *until > now);
        for at in 0..self.nodes.len() {
            if self.nodes[at].due.is_some_and(|due| due <= now) {
                self.flush(at);
            }
        }
    }

    /// Gives up waiting for the rest of a line of this node.
    pub(super) fn flush(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.due = None;
        let half = node.half.split().freeze();
        self.add(at, half);
    }

    /// Takes what is ready, if there is anything that waits for nothing more.
    pub(super) fn take(&mut self, now: Instant) -> Option<Batch> {
        let waits = self.ready_bytes < LARGE && self.waits.is_some_and(|until| until > now);
        if self.ready_bytes == 0 || waits {
            return None;
        }
        self.waits = (self.ready_bytes >= MUCH).then(|| now + MUCH_PATIENCE);
        Some(self.take_all())
    }

    /// Takes what is ready, also if that is nothing.
    pub(super) fn take_all(&mut self) -> Batch {
        let data = match self.ready.len() {
            1 => self.ready.remove(0),
            _ => self.ready.drain(..).fold(BytesMut::with_capacity(self.ready_bytes), joined).freeze(),
        };
        let taken = std::mem::take(&mut self.ready_bytes);
        let offsets = self.nodes.iter().map(|node| node.offset).collect();
        let left = self.nodes.iter().any(|node| !node.half.is_empty());
        let memory = match (left, &mut self.memory) {
            (true, Some(held)) => held.split(taken),
            (_, memory) => memory.take(),
        };
        Batch { data, offsets, _memory: memory }
    }

    fn add(&mut self, at: usize, data: Bytes) {
        if !data.is_empty() {
            self.nodes[at].offset += data.len() as u64;
            self.ready_bytes += data.len();
            self.ready.push(data);
        }
    }
}

fn joined(mut all: BytesMut, piece: Bytes) -> BytesMut {
    all.extend_from_slice(&piece);
    all
}

#[cfg(test)]
mod tests {
    use super::super::memory::{Memory, Share};
    use super::*;

    struct Scene {
        gathered: Gathered,
        memory: Share,
        /// How much of it is free while nothing is gathered.
        all: usize,
        now: Instant,
    }

    impl Scene {
        fn of(nodes: usize) -> Self {
            let (gathered, memory) = (Gathered::new((0..nodes).map(|_| 0)), Memory::default().share());
            Scene { gathered, all: memory.free(), memory, now: Instant::now() }
        }

        async fn push(&mut self, at: usize, text: &str) {
            let held = self.memory.take(text.len()).await.unwrap();
            self.gathered.push(at, Bytes::copy_from_slice(text.as_bytes()), held, self.now);
        }

        fn take(&mut self) -> Option<(String, Vec<u64>)> {
            let batch = self.gathered.take(self.now)?;
            Some((String::from_utf8(batch.data.to_vec()).unwrap(), batch.offsets.clone()))
        }
    }

    #[tokio::test]
    async fn of_one_node_everything_goes_on_at_once() {
        let mut scene = Scene::of(1);
        scene.push(0, "half").await;
        scene.push(0, " a line").await;
        assert_eq!(scene.take(), Some(("half a line".into(), vec![11])));
        assert_eq!(scene.take(), None);
        assert_eq!(scene.memory.free(), scene.all);
    }

    #[tokio::test]
    async fn much_becomes_large_pieces_but_not_late() {
        let mut scene = Scene::of(1);
        scene.push(0, &"x".repeat(MUCH)).await;
        assert!(scene.take().is_some(), "the first of it goes on at once");
        scene.push(0, "more").await;
        assert_eq!(scene.take(), None);
        let due = scene.gathered.due().unwrap();
        scene.now = due;
        scene.gathered.flush_due(due);
        assert_eq!(scene.gathered.due(), None);
        assert_eq!(scene.take(), Some(("more".into(), vec![MUCH as u64 + 4])));
        scene.push(0, "little").await;
        assert!(scene.take().is_some(), "after little nothing waits");
        scene.push(0, &"x".repeat(MUCH)).await;
        assert!(scene.take().is_some());
        scene.push(0, &"x".repeat(LARGE)).await;
        assert!(scene.take().is_some(), "what is large waits for nothing");
    }

    #[tokio::test]
    async fn lines_of_several_nodes_stay_whole() {
        let mut scene = Scene::of(2);
        scene.push(0, "one\ntw").await;
        scene.push(1, "eins\n").await;
        assert_eq!(scene.take(), Some(("one\neins\n".into(), vec![4, 5])));
        scene.push(0, "o\nthree").await;
        assert_eq!(scene.take(), Some(("two\n".into(), vec![8, 5])));
        assert_eq!((scene.take(), scene.gathered.bytes()), (None, 5));
        scene.gathered.flush(0);
        assert_eq!(scene.take(), Some(("three".into(), vec![13, 5])));
        assert_eq!(scene.memory.free(), scene.all, "all memory is given back");
    }

    #[tokio::test]
    async fn half_a_line_waits_only_so_long() {
        let mut scene = Scene::of(2);
        scene.push(1, "progress 1%").await;
        let due = scene.gathered.due().unwrap();
        scene.now += LINE_PATIENCE / 2;
        scene.push(1, "\rprogress 2%").await;
        assert_eq!(scene.gathered.due(), Some(due), "it does not wait anew");
        scene.gathered.flush_due(scene.now);
        assert_eq!(scene.take(), None);
        scene.gathered.flush_due(due);
        assert_eq!(scene.take(), Some(("progress 1%\rprogress 2%".into(), vec![0, 23])));
        scene.push(0, &"x".repeat(LINE_LIMIT)).await;
        assert!(scene.take().is_some_and(|(text, _)| text.len() == LINE_LIMIT), "nor does it grow without limit");
    }
}
