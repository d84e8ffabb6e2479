//! Limits on connections and on failed logins, in total and per address.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tarn_base::fair_share::{FairShare, Permit};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Limits;

/// One failed login is forgiven after this time.
const FORGIVE_INTERVAL: Duration = Duration::from_secs(2);

/// The number of addresses whose failed logins are counted. Further addresses share one count.
const MAX_ADDRESSES: usize = 10_000;

/// The key of all addresses that are not counted individually.
const OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Counts the connections and failed logins.
#[derive(Debug)]
pub(crate) struct ConnectionLimiter {
    connections: FairShare<IpAddr>,
    max_starting: usize,
    starting_per_address: usize,
    starting: Mutex<StartingConnections>,
    max_failures: u32,
    failures: Mutex<FailedLogins>,
}

/// The failed logins of each address that are not forgiven, and since when they are counted.
#[derive(Debug, Default)]
struct FailedLogins(HashMap<IpAddr, (u32, Instant)>);

impl ConnectionLimiter {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(ConnectionLimiter {
            connections: FairShare::new(limits.connections, limits.connections_per_address),
            max_starting: limits.starting,
            starting_per_address: limits.starting_per_address,
            starting: Mutex::default(),
            max_failures: limits.failures_per_address,
            failures: Mutex::default(),
        })
    }

    /// Admits a connection unless a limit is reached. If too many have not logged in, the oldest of the address with
    /// the most of them makes room, so that a few addresses cannot keep all others out.
    pub(crate) fn try_admit(self: &Arc<Self>, from: IpAddr, now: Instant) -> Option<ConnectionPermit> {
        let address = limit_key(from);
        if self.failures.lock().count(address, now) >= self.max_failures {
            return None;
        }
        let connection = self.connections.try_acquire(&address, 1).ok()?;
        let (number, displaced) = self.starting.lock().admit(address, self.max_starting, self.starting_per_address)?;
        let (limiter, starting) = (self.clone(), Some(number));
        Some(ConnectionPermit {
            limiter,
            address,
            admitted: now,
            _connection: connection,
            starting,
            displaced,
            refused: false,
        })
    }
}

/// The connections that have not logged in, in the order of their arrival.
#[derive(Debug, Default)]
struct StartingConnections {
    next: u64,
    open: BTreeMap<u64, (IpAddr, Arc<Notify>)>,
}

impl StartingConnections {
    /// Admits a connection, and returns its number and what tells it that it was displaced by another one.
    fn admit(&mut self, address: IpAddr, total: usize, share: usize) -> Option<(u64, Arc<Notify>)> {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for (from, _) in self.open.values() {
            *counts.entry(*from).or_default() += 1;
        }
        let own = counts.get(&address).copied().unwrap_or(0);
        if own >= share {
            return None;
        }
        if self.open.len() >= total {
            let (crowded, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
            let (oldest, _) = self.open.iter().find(|(_, (from, _))| *from == crowded && count > own)?;
            let oldest = *oldest;
            self.open.remove(&oldest)?.1.notify_one();
        }
        let displaced = Arc::new(Notify::new());
        self.next += 1;
        self.open.insert(self.next, (address, displaced.clone()));
        Some((self.next, displaced))
    }
}

impl FailedLogins {
    /// Returns how many failures of an address are not forgiven.
    fn count(&mut self, address: IpAddr, now: Instant) -> u32 {
        let key = self.key_of(address, now);
        let left = self.0.get_mut(&key).map_or(0, |failures| forgive(failures, now));
        if left == 0 {
            self.0.remove(&key);
        }
        left
    }

    /// Adds a failure of a connection.
    fn add(&mut self, address: IpAddr, admitted: Instant) {
        let key = self.key_of(address, admitted);
        self.0.entry(key).or_insert((0, admitted)).0 += 1;
    }

    /// Returns the key to count under, and forgets addresses without failures if there are too many.
    fn key_of(&mut self, address: IpAddr, now: Instant) -> IpAddr {
        if self.0.len() >= MAX_ADDRESSES && !self.0.contains_key(&address) {
            self.0.retain(|_, failures| forgive(failures, now) > 0);
        }
        if self.0.len() < MAX_ADDRESSES || self.0.contains_key(&address) { address } else { OTHERS }
    }
}

/// Forgives failures after their time, and returns how many are left.
fn forgive((failures, counted_from): &mut (u32, Instant), now: Instant) -> u32 {
    let forgiven = (now - *counted_from).as_secs() / FORGIVE_INTERVAL.as_secs();
    let forgiven = u32::try_from(forgiven).unwrap_or(u32::MAX);
    *failures = failures.saturating_sub(forgiven);
    *counted_from += FORGIVE_INTERVAL * forgiven;
    *failures
}

/// The permit of one connection; dropping it releases it.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    address: IpAddr,
    admitted: Instant,
    _connection: Permit<IpAddr>,
    /// The number among those that have not logged in.
    starting: Option<u64>,
    displaced: Arc<Notify>,
    refused: bool,
}

impl ConnectionPermit {
    /// Records that a key was refused.
    pub(crate) fn record_refused_key(&mut self) {
        self.refused = true;
    }

    /// What tells the connection that it has to make room for another one.
    pub(crate) fn displaced(&self) -> Arc<Notify> {
        self.displaced.clone()
    }

    /// Records that the client has logged in. From now on the connection is not displaced.
    pub(crate) fn mark_logged_in(&mut self) {
        if let Some(number) = self.starting.take() {
            self.limiter.starting.lock().open.remove(&number);
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if self.starting.is_some() && self.refused {
            self.limiter.failures.lock().add(self.address, self.admitted);
        }
        self.mark_logged_in();
    }
}

/// A client with an IPv6 address usually has a whole /64 network, which counts as one address.
fn limit_key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// An address with too many failures is refused for a while.
    #[test]
    fn failures_block_an_address() {
        let limiter = ConnectionLimiter::new(&Limits { failures_per_address: 3, ..Limits::default() });
        let now = Instant::now();
        for _ in 0..3 {
            limiter.try_admit(address(1), now).unwrap().record_refused_key();
        }
        assert!(limiter.try_admit(address(1), now).is_none(), "the fourth connection is refused");
        assert!(limiter.try_admit(address(2), now).is_some(), "other addresses are not affected");
        let now = now + FORGIVE_INTERVAL;
        assert!(limiter.try_admit(address(1), now).is_some(), "a failure is forgiven");
        let now = now + FORGIVE_INTERVAL * 10;
        drop(limiter.try_admit(address(1), now));
        assert!(limiter.failures.lock().0.is_empty(), "an idle address is forgotten");
    }

    /// A refused key before a successful login is not a failure.
    #[test]
    fn refused_key_before_login_is_no_failure() {
        let limiter = ConnectionLimiter::new(&Limits::default());
        let mut permit = limiter.try_admit(address(1), Instant::now()).unwrap();
        permit.record_refused_key();
        permit.mark_logged_in();
        drop(permit);
        assert!(limiter.failures.lock().0.is_empty());
    }

    /// Permits are limited and released.
    #[test]
    fn permits_are_limited_and_released() {
        let limits =
            Limits { starting_per_address: 1, connections_per_address: 2, connections: 3, ..Limits::default() };
        let (limiter, now) = (ConnectionLimiter::new(&limits), Instant::now());
        let mut first = limiter.try_admit(address(1), now).unwrap();
        assert!(limiter.try_admit(address(1), now).is_none(), "one login at a time");
        first.mark_logged_in();
        let mut second = limiter.try_admit(address(1), now).unwrap();
        second.mark_logged_in();
        assert!(limiter.try_admit(address(1), now).is_none(), "two per address");
        let third = limiter.try_admit(address(2), now).unwrap();
        assert!(limiter.try_admit(address(3), now).is_none(), "three in total");
        drop((first, third));
        assert!(limiter.try_admit(address(1), now).is_some());
    }

    /// Addresses with many connections that have not logged in make room for others, one by one, and a connection that
    /// has logged in stays.
    #[tokio::test]
    async fn crowded_address_makes_room() {
        let limits = Limits { starting: 4, starting_per_address: 2, ..Limits::default() };
        let (limiter, now) = (ConnectionLimiter::new(&limits), Instant::now());
        let admit = |last| limiter.try_admit(address(last), now);
        let mut held: Vec<_> = [1, 1, 2, 2].map(|last| admit(last).unwrap()).into();
        let third = admit(3).expect("two addresses do not keep a third one out");
        // The addresses have equally many, and one of them lost its older connection.
        held[2].displaced().notified().await;
        assert!(admit(1).is_none(), "its share is used up");
        held[0].mark_logged_in();
        let fourth = admit(4).unwrap();
        assert_eq!(limiter.starting.lock().open.len(), 4);
        drop((held, third, fourth));
        assert!(limiter.starting.lock().open.is_empty());
    }

    /// An IPv6 network counts as one address.
    #[test]
    fn ipv6_network_counts_as_one_address() {
        let of = |text: &str| limit_key(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), address(1));
    }
}
