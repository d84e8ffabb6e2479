//! The open connections of one listener, by the address that they come from, and which of them has to make room.
//!
//! The table is locked only when a connection begins or ends; what a connection does is in atomics of its own. A
//! connection is silent until its first call has arrived, and idle between calls. No running call is ever cut off for
//! another connection.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tarn_base::fair_share::{GroupedPermit, GroupedShare, GroupedUsedUp};
use tarn_model::ids::{InstanceId, OrgId, UserId};
use tarn_model::users::Owner;
use tokio::time::Instant;

/// How many connections may be open at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionLimits {
    pub(super) all: usize,
    pub(super) per_address: usize,
    pub(super) silent_per_address: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        ConnectionLimits { all: 4096, per_address: 512, silent_per_address: 64 }
    }
}

/// A connection must be idle for this long before it can be closed for another one: less is the pause between two calls
/// of a busy client.
const MIN_IDLE: Duration = Duration::from_secs(1);

/// Whom a connection counts for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Peer {
    /// An IPv4 address, or an IPv6 network.
    Address(IpAddr),
    Instance(InstanceId),
    /// Clients share the address of a proxy, so that it has no limit of its own.
    TrustedProxy,
}

impl Peer {
    /// A client with an IPv6 address usually has a whole /64 network, which counts as one address.
    pub(super) fn of_address(address: IpAddr) -> Peer {
        Peer::Address(network_of(address))
    }
}

/// Returns what counts as one address: an IPv4 address, or the /64 network of an IPv6 address.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
    }
}

const SILENT: u8 = 0;
const IDLE: u8 = 1;
const BUSY: u8 = 2;
const CLOSED: u8 = 3;

/// The connections of all users and organizations. On one of a proxy, each call counts for its own user.
pub(crate) type UserConnections = GroupedShare<UserId, OrgId>;
type UserConnection = GroupedPermit<UserId, OrgId>;

/// What the table, the task and the calls of a connection share.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    phase: AtomicU8,
    /// When the connection began or became idle, in milliseconds of the table.
    since_ms: AtomicU64,
    began: Instant,
    is_shared: bool,
    closes_after_call: AtomicBool,
    user: Mutex<Option<(Owner, UserConnection)>>,
    waker: AtomicWaker,
}

impl ConnectionState {
    /// Marks the beginning of a call; `false` if the connection has just been closed for another one.
    pub(super) fn begin_call(&self) -> bool {
        let begun = |phase| (phase != CLOSED).then_some(BUSY);
        self.phase.fetch_update(Ordering::AcqRel, Ordering::Acquire, begun).is_ok()
    }

    /// Marks the end of a call.
    pub(super) fn end_call(&self) {
        if self.is_shared {
            *self.user.lock() = None;
        }
        self.since_ms.store(milliseconds(self.began.elapsed()), Ordering::Release);
        let _ = self.phase.compare_exchange(BUSY, IDLE, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Returns whether the connection was closed for another one.
    pub(super) fn is_closed(&self) -> bool {
        self.phase.load(Ordering::Acquire) == CLOSED
    }

    /// Lets the table wake the task of the connection.
    pub(super) fn register_waker(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// Returns whether the connection ends after its call.
    pub(super) fn closes_after_call(&self) -> bool {
        self.closes_after_call.load(Ordering::Acquire)
    }

    /// Counts the connection for the user of its call, and for their organization. Over a limit it ends after the call,
    /// unless it is shared with others.
    pub(crate) fn assign_to(&self, user: &Owner, connections: &UserConnections) -> Result<(), GroupedUsedUp> {
        let mut assigned = self.user.lock();
        if assigned.as_ref().is_none_or(|(known, _)| known != user) {
            // The permit of another user is released first, in case it is needed.
            *assigned = None;
            let permit = connections.try_acquire(Some(&user.user), user.org.as_ref());
            let permit = permit.inspect_err(|_| self.closes_after_call.store(!self.is_shared, Ordering::Release))?;
            *assigned = Some((user.clone(), permit));
        }
        Ok(())
    }

    /// Closes the connection unless a call runs.
    fn close(&self) -> bool {
        let closed = |phase| matches!(phase, SILENT | IDLE).then_some(CLOSED);
        let is_closed = self.phase.fetch_update(Ordering::AcqRel, Ordering::Acquire, closed).is_ok();
        if is_closed {
            self.waker.wake();
        }
        is_closed
    }

    /// Returns how readily this connection makes room: the least value comes first, and `None` does not.
    fn rank(&self, now_ms: u64) -> Option<(u8, u64)> {
        let since = self.since_ms.load(Ordering::Acquire);
        match self.phase.load(Ordering::Acquire) {
            SILENT => Some((SILENT, since)),
            IDLE if now_ms.saturating_sub(since) >= milliseconds(MIN_IDLE) => Some((IDLE, since)),
            _ => None,
        }
    }
}

/// The connections of one listener.
#[derive(Debug)]
pub(super) struct Connections {
    limits: ConnectionLimits,
    began: Instant,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    all: usize,
    peers: HashMap<Peer, BTreeMap<u64, Arc<ConnectionState>>>,
}

impl Connections {
    pub(super) fn new(limits: ConnectionLimits) -> Arc<Connections> {
        Arc::new(Connections { limits, began: Instant::now(), table: Mutex::default() })
    }

    /// Admits a connection. At a limit another one is closed for it: a silent one, or else an idle one. `None` if there
    /// is none.
    pub(super) fn admit(self: &Arc<Self>, peer: Peer) -> Option<Admitted> {
        let now_ms = milliseconds(self.began.elapsed());
        let mut table = self.table.lock();
        if peer != Peer::TrustedProxy {
            self.make_room_for_peer(&mut table, &peer, now_ms)?;
        }
        if table.all >= self.limits.all {
            table.close_one(now_ms)?;
        }
        table.next += 1;
        table.all += 1;
        let (id, is_shared) = (table.next, peer == Peer::TrustedProxy);
        let state = Arc::new(ConnectionState {
            phase: AtomicU8::new(SILENT),
            since_ms: AtomicU64::new(now_ms),
            began: self.began,
            is_shared,
            closes_after_call: AtomicBool::new(false),
            user: Mutex::default(),
            waker: AtomicWaker::new(),
        });
        table.peers.entry(peer.clone()).or_default().insert(id, state.clone());
        Some(Admitted { connections: self.clone(), peer, id, state })
    }

    /// Keeps an address below its limits at its own expense.
    fn make_room_for_peer(&self, table: &mut Table, peer: &Peer, now_ms: u64) -> Option<()> {
        let Some(open) = table.peers.get(peer) else { return Some(()) };
        let silent = open.values().filter(|state| state.phase.load(Ordering::Acquire) == SILENT).count();
        if silent < self.limits.silent_per_address && open.len() < self.limits.per_address {
            return Some(());
        }
        let has_space = open.len() < self.limits.per_address;
        let (_, id) = open.iter().filter_map(|(id, state)| Some((state.rank(now_ms)?, *id))).min()?;
        // The silent connection may have begun a call at this moment; then it is no longer silent.
        table.close(peer, id).or(has_space.then_some(()))
    }

    /// Closes the connection that is needed least, because the process has no descriptors left.
    pub(super) fn shed_one(&self) {
        let _ = self.table.lock().close_one(milliseconds(self.began.elapsed()));
    }

    /// Wakes the tasks of all connections.
    pub(super) fn wake_all(&self) {
        self.table.lock().peers.values().flat_map(BTreeMap::values).for_each(|state| state.waker.wake());
    }
}

impl Table {
    /// Closes one connection of the address that has the most; `None` if a call runs on every one. An address with few
    /// connections does not lose one that has just begun to an address with many.
    fn close_one(&mut self, now_ms: u64) -> Option<()> {
        let ranked = self.peers.iter().filter_map(|(peer, open)| {
            let least = open.iter().filter_map(|(id, state)| Some((state.rank(now_ms)?, *id))).min()?;
            Some((Reverse(open.len()), least, peer))
        });
        let (_, (_, id), peer) = ranked.min_by_key(|(count, least, _)| (*count, *least))?;
        let peer = peer.clone();
        self.close(&peer, id)
    }

    fn close(&mut self, peer: &Peer, id: u64) -> Option<()> {
        let is_closed = self.peers.get(peer)?.get(&id)?.close();
        is_closed.then(|| self.remove(peer, id))
    }

    fn remove(&mut self, peer: &Peer, id: u64) {
        let Some(open) = self.peers.get_mut(peer) else { return };
        if open.remove(&id).is_some() {
            self.all -= 1;
        }
        if open.is_empty() {
            self.peers.remove(peer);
        }
    }
}

/// The place of a connection in the table, until it is dropped.
#[derive(Debug)]
pub(super) struct Admitted {
    connections: Arc<Connections>,
    peer: Peer,
    id: u64,
    pub(super) state: Arc<ConnectionState>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.connections.table.lock().remove(&self.peer, self.id);
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: ConnectionLimits = ConnectionLimits { all: 6, per_address: 4, silent_per_address: 2 };

    fn address(last: u8) -> Peer {
        Peer::of_address(IpAddr::from([192, 0, 2, last]))
    }

    /// An address at its limit of silent connections loses the oldest of its own.
    #[tokio::test(start_paused = true)]
    async fn silent_connection_makes_room() {
        let connections = Connections::new(FEW);
        let other = connections.admit(address(2)).unwrap();
        let first = connections.admit(address(1)).unwrap();
        let second = connections.admit(address(1)).unwrap();
        let third = connections.admit(address(1)).unwrap();
        assert!(first.state.is_closed() && !second.state.is_closed() && !third.state.is_closed());
        assert!(!other.state.is_closed() && !first.state.begin_call());
        // What has called is no longer silent.
        assert!(second.state.begin_call());
        let fourth = connections.admit(address(1)).unwrap();
        assert!(!third.state.is_closed() && !fourth.state.is_closed());
    }

    /// An instance has the limits of an address: neither another instance nor an address loses a connection to it.
    #[tokio::test(start_paused = true)]
    async fn instance_counts_for_itself() {
        let connections = Connections::new(FEW);
        let instance = |id: &str| Peer::Instance(id.parse().unwrap());
        let (one, other) = (instance("i-000000000001"), instance("i-000000000002"));
        let beside = [connections.admit(other).unwrap(), connections.admit(address(1)).unwrap()];
        let silent: Vec<_> = (0..5).map(|_| connections.admit(one.clone()).unwrap()).collect();
        let open: Vec<bool> = silent.iter().map(|admitted| !admitted.state.is_closed()).collect();
        assert_eq!(open, [false, false, false, true, true]);
        assert!(beside.iter().all(|admitted| !admitted.state.is_closed()));
        // Four connections with calls are all that it may have.
        let mut busy: Vec<_> = silent.into_iter().skip(3).collect();
        for _ in 0..2 {
            assert!(busy.iter().all(|admitted| admitted.state.begin_call()));
            busy.push(connections.admit(one.clone()).unwrap());
        }
        assert!(busy.iter().all(|admitted| admitted.state.begin_call()));
        assert!(connections.admit(one).is_none(), "no running call is cut off");
        assert!(beside.iter().all(|admitted| !admitted.state.is_closed()));
    }

    /// Running calls are not cut off: the address is refused, until one of its connections is idle for a while.
    #[tokio::test(start_paused = true)]
    async fn busy_connections_stay() {
        let connections = Connections::new(FEW);
        let busy: Vec<_> = (0..4).map(|_| connections.admit(address(1)).unwrap()).collect();
        assert!(busy.iter().skip(2).all(|admitted| admitted.state.begin_call()));
        let busy: Vec<_> =
            busy.into_iter().skip(2).chain((0..2).map(|_| connections.admit(address(1)).unwrap())).collect();
        assert!(busy.iter().all(|admitted| admitted.state.begin_call()));
        assert!(connections.admit(address(1)).is_none());
        busy[1].state.end_call();
        assert!(connections.admit(address(1)).is_none(), "a pause between two calls is not idle");
        tokio::time::advance(MIN_IDLE).await;
        assert!(connections.admit(address(1)).is_some() && busy[1].state.is_closed());
    }

    /// Many addresses together cannot keep others out, and a proxy has no limit of its own.
    #[tokio::test(start_paused = true)]
    async fn full_table_makes_room() {
        let connections = Connections::new(FEW);
        let proxied: Vec<_> = (0..6).map(|_| connections.admit(Peer::TrustedProxy).unwrap()).collect();
        assert!(connections.admit(address(1)).is_some() && proxied[0].state.is_closed());
        let held: Vec<_> = (1..=9).map(|last| connections.admit(address(last)).unwrap()).collect();
        assert_eq!(connections.table.lock().all, 6);
        assert!(held.last().is_some_and(|admitted| !admitted.state.is_closed()));
        drop((proxied, held));
        let table = connections.table.lock();
        assert_eq!((table.all, table.peers.len()), (0, 0));
    }

    /// In a full table the address with the most connections makes room, not a connection that has just begun.
    #[tokio::test(start_paused = true)]
    async fn crowded_address_makes_room() {
        let connections = Connections::new(FEW);
        let held: Vec<_> = (0..4).map(|_| connections.admit(address(1)).unwrap()).collect();
        for admitted in &held {
            let _ = admitted.state.begin_call();
        }
        let held: Vec<_> = held.into_iter().filter(|admitted| !admitted.state.is_closed()).collect();
        let more: Vec<_> = (held.len()..4).map(|_| connections.admit(address(1)).unwrap()).collect();
        assert!(more.iter().all(|admitted| admitted.state.begin_call()));
        held.iter().chain(&more).for_each(|admitted| admitted.state.end_call());
        tokio::time::advance(MIN_IDLE).await;
        let honest = [connections.admit(address(2)).unwrap(), connections.admit(address(3)).unwrap()];
        let late = connections.admit(address(4)).unwrap();
        assert!(honest.iter().chain([&late]).all(|admitted| !admitted.state.is_closed()));
        assert_eq!(held.iter().chain(&more).filter(|admitted| admitted.state.is_closed()).count(), 1);
    }

    /// An IPv6 network counts as one address.
    #[test]
    fn ipv6_network_counts_as_one_address() {
        let of = |text: &str| Peer::of_address(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), address(1));
    }

    /// A user and an organization have a number of connections; one that is over it ends after its call.
    #[tokio::test]
    async fn connections_of_user_are_limited() {
        let (connections, shares) = (Connections::new(ConnectionLimits::default()), UserConnections::new(9, 1, 2));
        let [one, other, third] = ["u-000000000001", "u-000000000002", "u-000000000003"]
            .map(|user| Owner { user: user.parse().unwrap(), org: Some("o-000000000001".parse().unwrap()) });
        let [first, second, proxy] =
            [address(1), address(2), Peer::TrustedProxy].map(|peer| connections.admit(peer).unwrap());
        assert_eq!(first.state.assign_to(&one, &shares), Ok(()));
        assert_eq!(first.state.assign_to(&one, &shares), Ok(()), "a connection counts once");
        assert_eq!(second.state.assign_to(&one, &shares), Err(GroupedUsedUp::Member));
        assert!(second.state.closes_after_call() && !first.state.closes_after_call());
        // The calls on a connection of a proxy count one by one, and the connection stays open for others.
        assert_eq!(proxy.state.assign_to(&one, &shares), Err(GroupedUsedUp::Member));
        assert!(!proxy.state.closes_after_call());
        assert!(proxy.state.begin_call());
        assert_eq!(proxy.state.assign_to(&other, &shares), Ok(()));
        assert_eq!(second.state.assign_to(&third, &shares), Err(GroupedUsedUp::Group));
        proxy.state.end_call();
        assert_eq!(second.state.assign_to(&third, &shares), Ok(()), "the call on the proxy's connection has ended");
    }
}
