//! The data that a client has sent on a channel and that the target has not accepted yet.
//!
//! The SSH library lets a client continue as soon as its data has *arrived*, even if nothing has read it, and would
//! block the whole connection for one channel without a reader. Both are wrong here: memory would grow, or piping a
//! large file through `cat` would deadlock. So data is buffered here, per channel, and a client is slowed down in two
//! ways:
//!
//! * The library calls [`ChannelBuffers::next_window`] after every grant for the size of the next one. For a channel
//!   with much buffered data that is [`MINIMAL_WINDOW`]: the client continues with that many bytes at a time, and each
//!   of these waits a moment.
//! * If the client ignores its windows, the connection is not read at all until there is space.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::{Mutex, MutexGuard};
use russh::ChannelId;
use tarn_link::ToGuest;
use tarn_link::frames::MAX_DATA;
use tokio::sync::Notify;

/// The smallest window: the library enlarges a window only when data arrives, so it must never be zero.
pub(crate) const MINIMAL_WINDOW: u32 = 2;

/// How long a client with the minimal window waits for its next grant.
const GRANT_DELAY: Duration = Duration::from_millis(10);

/// Signals and window sizes that may be buffered; further ones are dropped.
const MAX_EVENTS: usize = 64;

/// How many ended channels are remembered; channel numbers repeat only after four billion others.
const MAX_ENDED_CHANNELS: usize = 512;

/// The data that all channels of a connection have buffered.
#[derive(Debug, Default)]
struct BufferedBytes {
    bytes: AtomicUsize,
    /// Notified when data was passed on or discarded.
    shrunk: Notify,
}

/// The buffers of all channels of one connection.
#[derive(Debug)]
pub(crate) struct ChannelBuffers {
    window: u32,
    limit: usize,
    connection_total: Arc<BufferedBytes>,
    by_channel: Mutex<HashMap<ChannelId, Arc<ChannelBuffer>>>,
    /// The channels that ended last: a client may still send on them for a while, and that data is dropped.
    ended: Mutex<VecDeque<ChannelId>>,
}

impl ChannelBuffers {
    pub(crate) fn new(window: u32, limit: usize) -> Arc<ChannelBuffers> {
        Arc::new(ChannelBuffers {
            window,
            limit,
            connection_total: Arc::default(),
            by_channel: Mutex::default(),
            ended: Mutex::default(),
        })
    }

    /// Returns the buffer of a channel. It is created on first use, because data may arrive before the channel's task
    /// asks for it.
    pub(crate) fn get_or_create(&self, channel: ChannelId) -> Arc<ChannelBuffer> {
        let (window, connection_total) = (self.window, self.connection_total.clone());
        let make =
            || Arc::new(ChannelBuffer { window, connection_total, state: Mutex::default(), changed: Notify::new() });
        lock(&self.by_channel).entry(channel).or_insert_with(make).clone()
    }

    /// Returns the buffer of a channel, unless the channel has ended.
    pub(crate) fn get_unless_ended(&self, channel: ChannelId) -> Option<Arc<ChannelBuffer>> {
        if lock(&self.ended).contains(&channel) { None } else { Some(self.get_or_create(channel)) }
    }

    /// Ends a channel and drops its buffer.
    pub(crate) fn end_channel(&self, channel: ChannelId) {
        {
            let mut ended = lock(&self.ended);
            if !ended.contains(&channel) {
                ended.push_back(channel);
            }
            if ended.len() > MAX_ENDED_CHANNELS {
                ended.pop_front();
            }
        }
        if let Some(buffer) = lock(&self.by_channel).remove(&channel) {
            buffer.close();
        }
    }

    /// Buffers data, and waits if the client must be slowed down. Returns `false` if the buffer stays full.
    pub(crate) async fn push_data(&self, channel: ChannelId, data: &[u8]) -> bool {
        let Some(buffer) = self.get_unless_ended(channel) else { return true };
        buffer.push_data(data);
        let full = || {
            buffer.buffered() > 4 * self.window as usize
                || self.connection_total.bytes.load(Ordering::Relaxed) > self.limit
        };
        if full() {
            let room = async {
                while full() && !buffer.is_closed() {
                    self.connection_total.shrunk.notified().await;
                }
            };
            return tokio::time::timeout(Duration::from_secs(60), room).await.is_ok();
        }
        if data.len() <= MINIMAL_WINDOW as usize && buffer.buffered() > self.window as usize {
            let room = async {
                while buffer.is_half_full() {
                    self.connection_total.shrunk.notified().await;
                }
            };
            // This usually times out: the client may then send its next few bytes.
            let _ = tokio::time::timeout(GRANT_DELAY, room).await;
        }
        true
    }

    /// Returns the size of the next window, after a grant of `current`. There is one such size for all channels: it is
    /// large for a channel with space, and minimal again after that grant if another channel is half full.
    pub(crate) fn next_window(&self, channel: ChannelId, current: u32) -> u32 {
        let buffers = lock(&self.by_channel);
        let is_half_full = buffers.get(&channel).is_some_and(|buffer| buffer.is_half_full());
        let shut = is_half_full || (current == self.window && buffers.values().any(|buffer| buffer.is_half_full()));
        if shut { MINIMAL_WINDOW } else { self.window }
    }
}

/// The tasks that read the channels end with the connection.
impl Drop for ChannelBuffers {
    fn drop(&mut self) {
        for buffer in lock(&self.by_channel).values() {
            buffer.close();
        }
    }
}

/// The buffer of one channel.
#[derive(Debug)]
pub(crate) struct ChannelBuffer {
    window: u32,
    connection_total: Arc<BufferedBytes>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<BytesMut>,
    buffered: usize,
    events: VecDeque<ToGuest>,
    eof: bool,
    is_eof_delivered: bool,
    closed: bool,
}

/// The next item of a buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChannelInput {
    Data(Bytes),
    /// A signal for the program, or a new size of its terminal.
    Event(ToGuest),
    /// No more input follows.
    Eof,
}

impl ChannelBuffer {
    fn push_data(&self, data: &[u8]) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        state.buffered += data.len();
        self.connection_total.bytes.fetch_add(data.len(), Ordering::Relaxed);
        match state.pieces.back_mut() {
            Some(last) if last.capacity() - last.len() >= data.len() => last.extend_from_slice(data),
            // A fast client fills large pieces; the first piece is as small as a single key press.
            back => {
                let mut piece =
                    BytesMut::with_capacity(if back.is_some() { MAX_DATA.max(data.len()) } else { data.len() });
                piece.extend_from_slice(data);
                state.pieces.push_back(piece);
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Adds an event. Events overtake data: an interrupt must not wait for it.
    pub(crate) fn push_event(&self, event: ToGuest) {
        let mut state = lock(&self.state);
        if state.events.len() < MAX_EVENTS {
            state.events.push_back(event);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// No more input follows.
    pub(crate) fn push_eof(&self) {
        lock(&self.state).eof = true;
        self.changed.notify_one();
    }

    /// Marks the channel as closed by the client. Data that came before an end of file is still delivered; otherwise
    /// the client has hung up, and the rest is dropped.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        if !state.eof {
            self.connection_total.bytes.fetch_sub(state.buffered, Ordering::Relaxed);
            state.buffered = 0;
            state.pieces.clear();
        }
        drop(state);
        self.changed.notify_one();
        self.connection_total.shrunk.notify_one();
    }

    /// Waits for the next item; `None` when the channel is closed.
    pub(crate) async fn next_input(&self) -> Option<ChannelInput> {
        loop {
            {
                let mut state = lock(&self.state);
                if let Some(event) = state.events.pop_front() {
                    return Some(ChannelInput::Event(event));
                }
                if let Some(piece) = state.pieces.pop_front() {
                    return Some(ChannelInput::Data(piece.freeze()));
                }
                if state.eof && !state.is_eof_delivered {
                    state.is_eof_delivered = true;
                    return Some(ChannelInput::Eof);
                }
                if state.closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Records that bytes have been passed on.
    pub(crate) fn release_bytes(&self, bytes: usize) {
        let mut state = lock(&self.state);
        // Closing the channel has already released what was buffered then.
        let bytes = bytes.min(state.buffered);
        state.buffered -= bytes;
        self.connection_total.bytes.fetch_sub(bytes, Ordering::Relaxed);
        drop(state);
        self.connection_total.shrunk.notify_one();
    }

    /// Waits until the channel is closed, and drops all data.
    pub(crate) async fn wait_until_closed(&self) {
        while let Some(item) = self.next_input().await {
            if let ChannelInput::Data(data) = item {
                self.release_bytes(data.len());
            }
        }
    }

    fn buffered(&self) -> usize {
        lock(&self.state).buffered
    }

    fn is_closed(&self) -> bool {
        lock(&self.state).closed
    }

    fn is_half_full(&self) -> bool {
        self.buffered() >= self.window as usize / 2
    }
}

/// A panic elsewhere leaves nothing inconsistent: every change happens under one lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u32 = 1000;

    fn channel(number: u32) -> ChannelId {
        // The library has no constructor for channel ids, so the test decodes one.
        use russh::keys::ssh_encoding::Decode;
        ChannelId::decode(&mut &number.to_be_bytes()[..]).unwrap()
    }

    /// A half full channel shrinks its own window, not that of others.
    #[tokio::test]
    async fn half_full_channel_shrinks_its_window() {
        let buffers = ChannelBuffers::new(WINDOW, 1 << 20);
        let (slow, quick) = (channel(1), channel(2));
        assert_eq!(buffers.next_window(slow, WINDOW), WINDOW);
        assert!(buffers.push_data(slow, &[0; 600]).await);
        assert_eq!(buffers.next_window(slow, WINDOW), MINIMAL_WINDOW, "its data has not been read");
        assert_eq!(buffers.next_window(quick, MINIMAL_WINDOW), WINDOW, "another channel may continue");
        assert_eq!(buffers.next_window(quick, WINDOW), MINIMAL_WINDOW, "the grant was for the other channel only");
        let buffer = buffers.get_or_create(slow);
        assert_eq!(buffer.next_input().await, Some(ChannelInput::Data(vec![0; 600].into())));
        assert_eq!(buffers.next_window(slow, MINIMAL_WINDOW), MINIMAL_WINDOW, "read, but not yet passed on");
        buffer.release_bytes(600);
        assert_eq!(buffers.next_window(slow, MINIMAL_WINDOW), WINDOW);
    }

    /// A client that ignores its window is not read.
    #[tokio::test]
    async fn full_buffer_stops_reading() {
        let buffers = ChannelBuffers::new(WINDOW, 1 << 20);
        let one = channel(1);
        assert!(buffers.push_data(one, &[0; 4000]).await);
        let buffers_clone = buffers.clone();
        let waiting = tokio::spawn(async move { buffers_clone.push_data(one, &[0; 4000]).await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "the buffer is full");
        buffers.end_channel(one);
        assert!(waiting.await.unwrap(), "a closed channel buffers nothing");
        assert_eq!(buffers.connection_total.bytes.load(Ordering::Relaxed), 0);
    }

    /// Events overtake data, and the end comes last.
    #[tokio::test]
    async fn events_overtake_data() {
        let buffers = ChannelBuffers::new(WINDOW, 1 << 20);
        assert!(buffers.push_data(channel(1), b"a").await && buffers.push_data(channel(1), b"b").await);
        let buffer = buffers.get_or_create(channel(1));
        buffer.push_eof();
        buffer.push_event(ToGuest::Signal("INT".into()));
        buffers.end_channel(channel(1));
        assert_eq!(buffer.next_input().await, Some(ChannelInput::Event(ToGuest::Signal("INT".into()))));
        let mut data = Vec::new();
        while let Some(ChannelInput::Data(piece)) = buffer.next_input().await {
            buffer.release_bytes(piece.len());
            data.extend_from_slice(&piece);
        }
        assert_eq!(data, b"ab", "a client that has sent everything may close the channel before it is passed on");
        assert_eq!(buffer.next_input().await, None);
        assert_eq!(buffers.connection_total.bytes.load(Ordering::Relaxed), 0);
    }

    /// Data for an ended channel is dropped.
    #[tokio::test]
    async fn ended_channel_buffers_nothing() {
        let buffers = ChannelBuffers::new(WINDOW, 1 << 20);
        buffers.get_or_create(channel(1));
        buffers.end_channel(channel(1));
        for _ in 0..100 {
            assert!(buffers.push_data(channel(1), &[0; 900]).await);
        }
        assert_eq!(buffers.connection_total.bytes.load(Ordering::Relaxed), 0);
        assert!(buffers.push_data(channel(2), b"a").await, "other channels continue");
        assert_eq!(buffers.connection_total.bytes.load(Ordering::Relaxed), 1);
    }

    /// Hanging up drops the buffered data.
    #[tokio::test]
    async fn hang_up_drops_buffered_data() {
        let buffers = ChannelBuffers::new(WINDOW, 1 << 20);
        assert!(buffers.push_data(channel(1), b"a").await);
        let buffer = buffers.get_or_create(channel(1));
        buffers.end_channel(channel(1));
        assert_eq!(buffer.next_input().await, None);
        assert_eq!(buffers.connection_total.bytes.load(Ordering::Relaxed), 0);
    }
}
