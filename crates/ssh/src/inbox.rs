//! What a client has sent on a channel and the machine has not taken yet.
//!
//! The library of the protocol lets a client send on as soon as its data has *arrived*, whether anybody has taken it or not, and
//! would stop the whole connection for one channel that nobody reads. Both would be wrong here: memory would grow, or `cat` of
//! something large into itself would wait for ever. So data is kept here, by channel, and two things hold a client back:
//!
//! * [`Inboxes::next_window`] is asked after every grant how large the next one may be. For a channel that has much lying here the answer
//!   is next to nothing: the client goes on with [`CLOSED`] bytes at a time, and each of these waits a moment.
//! * Where all that did not help (a client that does not keep to its windows), the connection is not read at all until there
//!   is room.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use russh::ChannelId;
use tarn_link::ToGuest;
use tarn_link::frames::MAX_DATA;
use tokio::sync::Notify;

/// The smallest window that can be given: the library opens a window again only when data arrives, so it must never be shut.
pub(crate) const CLOSED: u32 = 2;

/// How long a client that may send next to nothing waits for its next grant.
const HESITATION: Duration = Duration::from_millis(10);

/// Signals and sizes that may wait; more of them are dropped.
const MAX_EVENTS: usize = 64;

/// So many ended channels are remembered; their numbers come again only after four thousand million others.
const MAX_ENDED: usize = 512;

/// What all channels of a connection hold together.
#[derive(Debug, Default)]
struct Held {
    bytes: AtomicUsize,
    /// Some of it has been passed on, or nobody waits for it any more.
    less: Notify,
}

/// All channels of one connection.
#[derive(Debug)]
pub(crate) struct Inboxes {
    window: u32,
    limit: usize,
    held: Arc<Held>,
    by_channel: Mutex<HashMap<ChannelId, Arc<Inbox>>>,
    /// Channels that ended last: a client may still send on one for a while, and nobody will ever take that.
    ended: Mutex<VecDeque<ChannelId>>,
}

impl Inboxes {
    pub(crate) fn new(window: u32, limit: usize) -> Arc<Inboxes> {
        Arc::new(Inboxes { window, limit, held: Arc::default(), by_channel: Mutex::default(), ended: Mutex::default() })
    }

    /// The inbox of a channel. It is made when first asked for: data may come before whoever opened the channel asks.
    pub(crate) fn of(&self, channel: ChannelId) -> Arc<Inbox> {
        let (window, all) = (self.window, self.held.clone());
        let make = || Arc::new(Inbox { window, all, state: Mutex::default(), changed: Notify::new() });
        lock(&self.by_channel).entry(channel).or_insert_with(make).clone()
    }

    /// The inbox of a channel, unless it has ended.
    pub(crate) fn unless_ended(&self, channel: ChannelId) -> Option<Arc<Inbox>> {
        if lock(&self.ended).contains(&channel) { None } else { Some(self.of(channel)) }
    }

    /// Forgets a channel.
    pub(crate) fn remove(&self, channel: ChannelId) {
        {
            let mut ended = lock(&self.ended);
            if !ended.contains(&channel) {
                ended.push_back(channel);
            }
            if ended.len() > MAX_ENDED {
                ended.pop_front();
            }
        }
        if let Some(inbox) = lock(&self.by_channel).remove(&channel) {
            inbox.close();
        }
    }

    /// Keeps what has arrived, and waits where the client must be held back. `false` when it does not help.
    pub(crate) async fn push(&self, channel: ChannelId, data: &[u8]) -> bool {
        let Some(inbox) = self.unless_ended(channel) else { return true };
        inbox.push(data);
        let full = || inbox.held() > 4 * self.window as usize || self.held.bytes.load(Ordering::Relaxed) > self.limit;
        if full() {
            let room = async {
                while full() && !inbox.is_closed() {
                    self.held.less.notified().await;
                }
            };
            return tokio::time::timeout(Duration::from_secs(60), room).await.is_ok();
        }
        if data.len() <= CLOSED as usize && inbox.held() > self.window as usize {
            let room = async {
                while inbox.is_behind() {
                    self.held.less.notified().await;
                }
            };
            // Running out of time is the usual end of this: the client may then send its next few bytes.
            let _ = tokio::time::timeout(HESITATION, room).await;
        }
        true
    }

    /// How far a window may be opened at the next grant, after one was opened to `current`. There is one such number for all
    /// channels: it is open for a channel with room, and shut again after its grant when another one is behind.
    pub(crate) fn next_window(&self, channel: ChannelId, current: u32) -> u32 {
        let inboxes = lock(&self.by_channel);
        let is_behind = inboxes.get(&channel).is_some_and(|inbox| inbox.is_behind());
        let shut = is_behind || (current == self.window && inboxes.values().any(|inbox| inbox.is_behind()));
        if shut { CLOSED } else { self.window }
    }
}

/// Whoever reads channels is gone with the connection.
impl Drop for Inboxes {
    fn drop(&mut self) {
        for inbox in lock(&self.by_channel).values() {
            inbox.close();
        }
    }
}

/// One channel.
#[derive(Debug)]
pub(crate) struct Inbox {
    window: u32,
    all: Arc<Held>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<BytesMut>,
    held: usize,
    events: VecDeque<ToGuest>,
    eof: bool,
    eof_told: bool,
    closed: bool,
}

/// What comes out of an inbox.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// Input.
    Data(Bytes),
    /// Something happened to the terminal or the program.
    Event(ToGuest),
    /// No more input follows.
    Eof,
}

impl Inbox {
    fn push(&self, data: &[u8]) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        state.held += data.len();
        self.all.bytes.fetch_add(data.len(), Ordering::Relaxed);
        match state.pieces.back_mut() {
            Some(last) if last.capacity() - last.len() >= data.len() => last.extend_from_slice(data),
            // A client that is ahead fills large pieces; the first one is as small as a key that was pressed.
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

    /// Tells the machine that something happened. It overtakes input: an interrupt must not wait for it.
    pub(crate) fn event(&self, event: ToGuest) {
        let mut state = lock(&self.state);
        if state.events.len() < MAX_EVENTS {
            state.events.push_back(event);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// No more input follows.
    pub(crate) fn eof(&self) {
        lock(&self.state).eof = true;
        self.changed.notify_one();
    }

    /// The client has closed the channel. What it sent before is still passed on if that was all it had to say; otherwise it
    /// has hung up, and nobody waits for what is left.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        if !state.eof {
            self.all.bytes.fetch_sub(state.held, Ordering::Relaxed);
            state.held = 0;
            state.pieces.clear();
        }
        drop(state);
        self.changed.notify_one();
        self.all.less.notify_one();
    }

    /// The next thing; `None` when the channel is closed.
    pub(crate) async fn next(&self) -> Option<Item> {
        loop {
            {
                let mut state = lock(&self.state);
                if let Some(event) = state.events.pop_front() {
                    return Some(Item::Event(event));
                }
                if let Some(piece) = state.pieces.pop_front() {
                    return Some(Item::Data(piece.freeze()));
                }
                if state.eof && !state.eof_told {
                    state.eof_told = true;
                    return Some(Item::Eof);
                }
                if state.closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    /// So much has been passed on.
    pub(crate) fn passed_on(&self, bytes: usize) {
        let mut state = lock(&self.state);
        // What was held when the channel was closed has been given back already.
        let bytes = bytes.min(state.held);
        state.held -= bytes;
        self.all.bytes.fetch_sub(bytes, Ordering::Relaxed);
        drop(state);
        self.all.less.notify_one();
    }

    /// Waits for the end of the channel, dropping what still comes.
    pub(crate) async fn closed(&self) {
        while let Some(item) = self.next().await {
            if let Item::Data(data) = item {
                self.passed_on(data.len());
            }
        }
    }

    fn held(&self) -> usize {
        lock(&self.state).held
    }

    fn is_closed(&self) -> bool {
        lock(&self.state).closed
    }

    fn is_behind(&self) -> bool {
        self.held() >= self.window as usize / 2
    }
}

/// A panic elsewhere leaves nothing half done in here: every change is made in one go.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u32 = 1000;

    fn channel(number: u32) -> ChannelId {
        // The library makes these numbers; a test has to take the way over the wire.
        use russh::keys::ssh_encoding::Decode;
        ChannelId::decode(&mut &number.to_be_bytes()[..]).unwrap()
    }

    #[tokio::test]
    async fn a_channel_that_is_behind_shuts_its_window_and_not_that_of_others() {
        let inboxes = Inboxes::new(WINDOW, 1 << 20);
        let (slow, quick) = (channel(1), channel(2));
        assert_eq!(inboxes.next_window(slow, WINDOW), WINDOW);
        assert!(inboxes.push(slow, &[0; 600]).await);
        assert_eq!(inboxes.next_window(slow, WINDOW), CLOSED, "nobody has taken what is here");
        assert_eq!(inboxes.next_window(quick, CLOSED), WINDOW, "another one may go on");
        assert_eq!(inboxes.next_window(quick, WINDOW), CLOSED, "and the grant was for that one only");
        let inbox = inboxes.of(slow);
        assert_eq!(inbox.next().await, Some(Item::Data(vec![0; 600].into())));
        assert_eq!(inboxes.next_window(slow, CLOSED), CLOSED, "it has been taken and not yet passed on");
        inbox.passed_on(600);
        assert_eq!(inboxes.next_window(slow, CLOSED), WINDOW);
    }

    #[tokio::test]
    async fn a_client_that_ignores_its_window_is_not_read() {
        let inboxes = Inboxes::new(WINDOW, 1 << 20);
        let one = channel(1);
        assert!(inboxes.push(one, &[0; 4000]).await);
        let all = inboxes.clone();
        let waiting = tokio::spawn(async move { all.push(one, &[0; 4000]).await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "there is no room");
        inboxes.remove(one);
        assert!(waiting.await.unwrap(), "a channel that is closed holds nothing");
        assert_eq!(inboxes.held.bytes.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn events_overtake_data_and_the_end_comes_last() {
        let inboxes = Inboxes::new(WINDOW, 1 << 20);
        assert!(inboxes.push(channel(1), b"a").await && inboxes.push(channel(1), b"b").await);
        let inbox = inboxes.of(channel(1));
        inbox.eof();
        inbox.event(ToGuest::Signal("INT".into()));
        inboxes.remove(channel(1));
        assert_eq!(inbox.next().await, Some(Item::Event(ToGuest::Signal("INT".into()))));
        let mut data = Vec::new();
        while let Some(Item::Data(piece)) = inbox.next().await {
            inbox.passed_on(piece.len());
            data.extend_from_slice(&piece);
        }
        assert_eq!(data, b"ab", "a client that said all it had to say may close the channel before it is passed on");
        assert_eq!(inbox.next().await, None);
        assert_eq!(inboxes.held.bytes.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn what_comes_for_an_ended_channel_is_not_kept() {
        let inboxes = Inboxes::new(WINDOW, 1 << 20);
        inboxes.of(channel(1));
        inboxes.remove(channel(1));
        for _ in 0..100 {
            assert!(inboxes.push(channel(1), &[0; 900]).await);
        }
        assert_eq!(inboxes.held.bytes.load(Ordering::Relaxed), 0);
        assert!(inboxes.push(channel(2), b"a").await, "another channel goes on");
        assert_eq!(inboxes.held.bytes.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn whoever_hangs_up_leaves_nothing_behind() {
        let inboxes = Inboxes::new(WINDOW, 1 << 20);
        assert!(inboxes.push(channel(1), b"a").await);
        let inbox = inboxes.of(channel(1));
        inboxes.remove(channel(1));
        assert_eq!(inbox.next().await, None);
        assert_eq!(inboxes.held.bytes.load(Ordering::Relaxed), 0);
    }
}
