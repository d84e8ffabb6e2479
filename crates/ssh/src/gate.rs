//! Who may connect at all: limits on connections and on failed logins, in total and by address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::Limits;

/// One failed login is forgiven after this time.
const FORGIVEN_AFTER: Duration = Duration::from_secs(2);

/// Addresses that are remembered. More of them at a time share one record.
const MAX_ADDRESSES: usize = 10_000;

/// Stands for all addresses beyond those that are remembered.
const OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Counts who is here.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    connections: usize,
    starting: usize,
    addresses: HashMap<IpAddr, Address>,
}

#[derive(Debug)]
struct Address {
    connections: usize,
    starting: usize,
    failures: u32,
    counted_from: Instant,
}

impl Address {
    fn forgive(&mut self, now: Instant) {
        let forgiven = (now - self.counted_from).as_secs() / FORGIVEN_AFTER.as_secs();
        self.failures = self.failures.saturating_sub(u32::try_from(forgiven).unwrap_or(u32::MAX));
        self.counted_from += FORGIVEN_AFTER * u32::try_from(forgiven).unwrap_or(0);
    }

    fn is_forgotten(&self) -> bool {
        self.connections == 0 && self.failures == 0
    }
}

impl Gate {
    /// Lets a connection in, if there is room for it.
    pub(crate) fn admit(self: &Arc<Self>, from: IpAddr, limits: &Limits, now: Instant) -> Option<Ticket> {
        let mut state = self.lock();
        let key = state.key(network(from), now);
        if state.connections >= limits.connections || state.starting >= limits.starting {
            return None;
        }
        let fresh = || Address { connections: 0, starting: 0, failures: 0, counted_from: now };
        let address = state.addresses.entry(key).or_insert_with(fresh);
        address.forgive(now);
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
        Some(Ticket { gate: self.clone(), address: key, starting: true, refused: false })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Under which address to count; makes room by forgetting those of whom there is nothing to remember.
    fn key(&mut self, address: IpAddr, now: Instant) -> IpAddr {
        if self.addresses.len() < MAX_ADDRESSES || self.addresses.contains_key(&address) {
            return address;
        }
        self.addresses.retain(|_, known| {
            known.forgive(now);
            !known.is_forgotten()
        });
        if self.addresses.len() < MAX_ADDRESSES { address } else { OTHERS }
    }
}

/// A place for one connection; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    gate: Arc<Gate>,
    address: IpAddr,
    starting: bool,
    refused: bool,
}

impl Ticket {
    /// A key was refused.
    pub(crate) fn refused(&mut self) {
        self.refused = true;
    }

    /// The visitor has logged in.
    pub(crate) fn entered(&mut self) {
        if std::mem::take(&mut self.starting) {
            let mut state = self.gate.lock();
            state.starting -= 1;
            if let Some(address) = state.addresses.get_mut(&self.address) {
                address.starting -= 1;
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let failed = self.starting && self.refused;
        self.entered();
        let mut state = self.gate.lock();
        state.connections -= 1;
        if let Some(address) = state.addresses.get_mut(&self.address) {
            address.connections -= 1;
            address.failures += u32::from(failed);
            if address.is_forgotten() {
                state.addresses.remove(&self.address);
            }
        }
    }
}

/// Whoever has one IPv6 address has a whole network of them.
fn network(address: IpAddr) -> IpAddr {
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

    #[test]
    fn an_address_with_too_many_failures_waits() {
        let gate = Arc::new(Gate::default());
        let now = Instant::now();
        let limits = Limits { failures_per_address: 3, ..Limits::default() };
        for _ in 0..3 {
            gate.admit(address(1), &limits, now).unwrap().refused();
        }
        assert!(gate.admit(address(1), &limits, now).is_none(), "the fourth has to wait");
        assert!(gate.admit(address(2), &limits, now).is_some(), "others do not");
        let now = now + FORGIVEN_AFTER;
        assert!(gate.admit(address(1), &limits, now).is_some(), "a failure is forgiven");
        let now = now + FORGIVEN_AFTER * 10;
        drop(gate.admit(address(1), &limits, now));
        assert!(gate.lock().addresses.is_empty(), "whoever did nothing wrong is forgotten");
    }

    #[test]
    fn a_refused_key_before_the_right_one_is_no_failure() {
        let gate = Arc::new(Gate::default());
        let mut ticket = gate.admit(address(1), &Limits::default(), Instant::now()).unwrap();
        ticket.refused();
        ticket.entered();
        drop(ticket);
        let state = gate.lock();
        assert_eq!((state.connections, state.starting, state.addresses.len()), (0, 0, 0));
    }

    #[test]
    fn places_are_limited_and_come_back() {
        let (gate, now) = (Arc::new(Gate::default()), Instant::now());
        let limits =
            Limits { starting_per_address: 1, connections_per_address: 2, connections: 3, ..Limits::default() };
        let mut first = gate.admit(address(1), &limits, now).unwrap();
        assert!(gate.admit(address(1), &limits, now).is_none(), "one at a time may log in");
        first.entered();
        let mut second = gate.admit(address(1), &limits, now).unwrap();
        second.entered();
        assert!(gate.admit(address(1), &limits, now).is_none(), "two from an address");
        let third = gate.admit(address(2), &limits, now).unwrap();
        assert!(gate.admit(address(3), &limits, now).is_none(), "three in all");
        drop((first, third));
        assert!(gate.admit(address(1), &limits, now).is_some());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), address(1));
    }
}
