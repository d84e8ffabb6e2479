//! Limits on connections and on failed logins, in total and per address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::Limits;

/// One failed login is forgiven after this time.
const FORGIVE_INTERVAL: Duration = Duration::from_secs(2);

/// The number of addresses that are tracked. Further addresses share one record.
const MAX_ADDRESSES: usize = 10_000;

/// The record of all addresses that are not tracked individually.
const OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Counts the connections and failed logins.
#[derive(Debug, Default)]
pub(crate) struct ConnectionLimiter {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    connections: usize,
    starting: usize,
    addresses: HashMap<IpAddr, AddressRecord>,
}

#[derive(Debug)]
struct AddressRecord {
    connections: usize,
    starting: usize,
    failures: u32,
    counted_from: Instant,
}

impl AddressRecord {
    fn forgive_failures(&mut self, now: Instant) {
        let forgiven = (now - self.counted_from).as_secs() / FORGIVE_INTERVAL.as_secs();
        self.failures = self.failures.saturating_sub(u32::try_from(forgiven).unwrap_or(u32::MAX));
        self.counted_from += FORGIVE_INTERVAL * u32::try_from(forgiven).unwrap_or(0);
    }

    fn is_idle(&self) -> bool {
        self.connections == 0 && self.failures == 0
    }
}

impl ConnectionLimiter {
    /// Admits a connection unless a limit is reached.
    pub(crate) fn try_admit(self: &Arc<Self>, from: IpAddr, limits: &Limits, now: Instant) -> Option<ConnectionPermit> {
        let mut state = self.lock();
        let key = state.record_key(limit_key(from), now);
        if state.connections >= limits.connections || state.starting >= limits.starting {
            return None;
        }
        let fresh = || AddressRecord { connections: 0, starting: 0, failures: 0, counted_from: now };
        let address = state.addresses.entry(key).or_insert_with(fresh);
        address.forgive_failures(now);
        if address.connections >= limits.connections_per_address
            || address.starting >= limits.starting_per_address
            || address.failures >= limits.failures_per_address
        {
            return None;
        }
        address.connections += 1;
        address.starting += 1;
        state.connections += 1;
        state.starting += 1;
        Some(ConnectionPermit { limiter: self.clone(), address: key, starting: true, refused: false })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    /// Returns the address to count under; frees space by removing idle records.
    fn record_key(&mut self, address: IpAddr, now: Instant) -> IpAddr {
        if self.addresses.len() < MAX_ADDRESSES || self.addresses.contains_key(&address) {
            return address;
        }
        self.addresses.retain(|_, known| {
            known.forgive_failures(now);
            !known.is_idle()
        });
        if self.addresses.len() < MAX_ADDRESSES { address } else { OTHERS }
    }
}

/// The permit of one connection; dropping it releases it.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    address: IpAddr,
    starting: bool,
    refused: bool,
}

impl ConnectionPermit {
    /// Records that a key was refused.
    pub(crate) fn record_refused_key(&mut self) {
        self.refused = true;
    }

    /// Records that the client has logged in.
    pub(crate) fn mark_logged_in(&mut self) {
        if std::mem::take(&mut self.starting) {
            let mut state = self.limiter.lock();
            state.starting -= 1;
            if let Some(address) = state.addresses.get_mut(&self.address) {
                address.starting -= 1;
            }
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let failed = self.starting && self.refused;
        self.mark_logged_in();
        let mut state = self.limiter.lock();
        state.connections -= 1;
        if let Some(address) = state.addresses.get_mut(&self.address) {
            address.connections -= 1;
            address.failures += u32::from(failed);
            if address.is_idle() {
                state.addresses.remove(&self.address);
            }
        }
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
        let limiter = Arc::new(ConnectionLimiter::default());
        let now = Instant::now();
        let limits = Limits { failures_per_address: 3, ..Limits::default() };
        for _ in 0..3 {
            limiter.try_admit(address(1), &limits, now).unwrap().record_refused_key();
        }
        assert!(limiter.try_admit(address(1), &limits, now).is_none(), "the fourth connection is refused");
        assert!(limiter.try_admit(address(2), &limits, now).is_some(), "other addresses are not affected");
        let now = now + FORGIVE_INTERVAL;
        assert!(limiter.try_admit(address(1), &limits, now).is_some(), "a failure is forgiven");
        let now = now + FORGIVE_INTERVAL * 10;
        drop(limiter.try_admit(address(1), &limits, now));
        assert!(limiter.lock().addresses.is_empty(), "an idle address is forgotten");
    }

    /// A refused key before a successful login is not a failure.
    #[test]
    fn refused_key_before_login_is_no_failure() {
        let limiter = Arc::new(ConnectionLimiter::default());
        let mut permit = limiter.try_admit(address(1), &Limits::default(), Instant::now()).unwrap();
        permit.record_refused_key();
        permit.mark_logged_in();
        drop(permit);
        let state = limiter.lock();
        assert_eq!((state.connections, state.starting, state.addresses.len()), (0, 0, 0));
    }

    /// Permits are limited and released.
    #[test]
    fn permits_are_limited_and_released() {
        let (limiter, now) = (Arc::new(ConnectionLimiter::default()), Instant::now());
        let limits =
            Limits { starting_per_address: 1, connections_per_address: 2, connections: 3, ..Limits::default() };
        let mut first = limiter.try_admit(address(1), &limits, now).unwrap();
        assert!(limiter.try_admit(address(1), &limits, now).is_none(), "one login at a time");
        first.mark_logged_in();
        let mut second = limiter.try_admit(address(1), &limits, now).unwrap();
        second.mark_logged_in();
        assert!(limiter.try_admit(address(1), &limits, now).is_none(), "two per address");
        let third = limiter.try_admit(address(2), &limits, now).unwrap();
        assert!(limiter.try_admit(address(3), &limits, now).is_none(), "three in total");
        drop((first, third));
        assert!(limiter.try_admit(address(1), &limits, now).is_some());
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
