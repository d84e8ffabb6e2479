//! The capacity queue, "the line": which claims start now, and whose turn it is to reserve capacity.
//!
//! A claim takes what is free at once, whichever claims wait before it. Only two things keep it from free capacity:
//! the first claim of the line fits as soon as what is already being released is free, or a claim reserves capacity. A
//! claim may reserve when it has waited for a while. It does so for a limited time, and organizations take turns.

use std::collections::BTreeMap;
use std::time::Duration;

use super::capacity::{Claim, Free, HeldCapacity, Inventory, Shape};
use crate::Time;
use crate::ids::RequestId;

/// A claim that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub place: Place,
    pub claim: Claim,
}

/// The place of a claim in the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub request: RequestId,
    /// The organization, or the user without one.
    pub scope: String,
    /// When it entered the line.
    pub since: Time,
}

/// What an organization holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Holding {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub gpus: u64,
}

/// What each organization holds; those that hold nothing may be absent.
pub type Holdings = BTreeMap<String, Holding>;

impl Holding {
    /// Returns the part of the host that is held, in millionths: that of the resource of which most is held.
    fn share(&self, inventory: &Inventory) -> u64 {
        let millionths = |held: u64, all: u64| {
            let share = u128::from(held) * 1_000_000 / u128::from(all.max(1));
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        millionths(self.cpu_milli, inventory.cpu_milli)
            .max(millionths(self.memory_bytes, inventory.memory_bytes))
            .max(millionths(self.gpus, inventory.gpus.len() as u64))
    }

    fn add(&mut self, claim: &Claim) {
        let nodes = u64::from(claim.nodes);
        self.cpu_milli = self.cpu_milli.saturating_add(claim.shape.cpu_milli.saturating_mul(nodes));
        self.memory_bytes = self.memory_bytes.saturating_add(claim.shape.memory_bytes.saturating_mul(nodes));
        self.gpus = self.gpus.saturating_add(u64::from(claim.shape.gpus).saturating_mul(nodes));
    }
}

/// The host at the moment of an examination.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    pub inventory: &'a Inventory,
    pub held: &'a HeldCapacity,
    /// The part of `held` that is being released: its clusters are being destroyed.
    pub releasing: &'a HeldCapacity,
}

/// A claim that starts, with the GPUs of each of its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub request: RequestId,
    pub gpus: Vec<Vec<String>>,
}

/// The result of an examination.
#[derive(Debug)]
pub struct Examined<'a> {
    /// The claims that start, in the order of the line.
    pub starts: Vec<Start>,
    closed: bool,
    room: Room<'a>,
}

impl Examined<'_> {
    /// Returns the GPUs of each node of a claim, if it starts.
    pub fn start_of(&self, request: &RequestId) -> Option<&Vec<Vec<String>>> {
        self.starts.iter().find(|start| start.request == *request).map(|start| &start.gpus)
    }

    /// Returns how many instances of a shape a new claim would get at once.
    pub fn count_room(&self, shape: &Shape) -> u64 {
        if self.closed { 0 } else { self.room.available().count_of(shape) }
    }
}

/// Sorts claims in the order of the line: the one that reserves, then those of the organization that holds least, and
/// of an organization, or of several that hold the same, the oldest first.
pub fn sort(places: &mut [Place], inventory: &Inventory, holdings: &Holdings, reserving: Option<&RequestId>) {
    places.sort_by_cached_key(|place| rank(place, inventory, holdings, reserving));
}

fn rank(
    place: &Place,
    inventory: &Inventory,
    holdings: &Holdings,
    reserving: Option<&RequestId>,
) -> (bool, u64, Time, RequestId) {
    let share = holdings.get(&place.scope).map_or(0, |holding| holding.share(inventory));
    (reserving != Some(&place.request), share, place.since, place.request.clone())
}

/// Decides which claims start. `reserving` is the claim that reserves capacity.
pub fn examine<'a>(
    host: Host<'a>,
    holdings: &Holdings,
    reserving: Option<&RequestId>,
    waiting: &[Waiting],
) -> Examined<'a> {
    let (mut holdings, mut held, mut starts) = (holdings.clone(), host.held.clone(), Vec::new());
    let mut room = Room::new(host);
    let closed = held.closed.is_some();
    let mut undecided: Vec<&Waiting> = if closed { Vec::new() } else { waiting.iter().collect() };
    let mut is_sorted = false;
    loop {
        if !is_sorted {
            // The last one is the first of the line.
            undecided.sort_by_cached_key(|one| rank(&one.place, host.inventory, &holdings, reserving));
            undecided.reverse();
            is_sorted = true;
        }
        let Some(next) = undecided.pop() else { break };
        if room.available().check_claim(&next.claim).is_ok() {
            let gpus = held.choose_gpus(host.inventory, &next.claim);
            held.gpus.extend(gpus.iter().flatten().cloned());
            room.set_aside(&next.claim);
            holdings.entry(next.place.scope.clone()).or_default().add(&next.claim);
            starts.push(Start { request: next.place.request.clone(), gpus });
            // Its organization holds more now, so that others may come before its next claim.
            is_sorted = false;
        } else if room.head.is_none() {
            let reserves = reserving == Some(&next.place.request);
            room.head = Some((next.claim.clone(), reserves));
        }
    }
    Examined { starts, closed, room }
}

/// What is left for claims behind the head of the line.
#[derive(Debug)]
struct Room<'a> {
    free: Free<'a>,
    /// What is free when everything that is being released is free.
    later: Free<'a>,
    /// What is free when nothing runs; GPUs that are not offered are not.
    offered: Free<'a>,
    /// The first claim of the line that does not start, and whether it reserves capacity.
    head: Option<(Claim, bool)>,
}

impl<'a> Room<'a> {
    fn new(Host { inventory, held, releasing }: Host<'a>) -> Self {
        let remaining = HeldCapacity {
            cpu_milli: held.cpu_milli.saturating_sub(releasing.cpu_milli),
            memory_bytes: held.memory_bytes.saturating_sub(releasing.memory_bytes),
            gpus: held.gpus.difference(&releasing.gpus).cloned().collect(),
            ..held.clone()
        };
        let nothing = HeldCapacity { withheld: held.withheld.clone(), ..HeldCapacity::default() };
        Room {
            free: Free::after_held(inventory, held),
            later: Free::after_held(inventory, &remaining),
            offered: Free::after_held(inventory, &nothing),
            head: None,
        }
    }

    fn set_aside(&mut self, claim: &Claim) {
        self.free.set_aside(claim);
        self.later.set_aside(claim);
    }

    /// Returns what the next claim may take.
    fn available(&self) -> Free<'a> {
        let Some((head, reserves)) = &self.head else { return self.free.clone() };
        if self.later.check_claim(head).is_ok() {
            // The head starts as soon as what is being released is free: what it needs then must still be there.
            let mut beside = self.later.clone();
            beside.set_aside(head);
            return beside.at_most(&self.free);
        }
        let mut free = self.free.clone();
        // Nothing is kept free for a claim that could not start if everything was released.
        if *reserves && self.offered.check_claim(head).is_ok() {
            free.set_aside(head);
        }
        free
    }
}

/// When claims reserve capacity, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How long a claim waits before it may reserve.
    pub reserve_after: Duration,
    /// How long it reserves at most, and how long its organization then pauses.
    pub reserve_for: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Rules { reserve_after: Duration::from_secs(30 * 60), reserve_for: Duration::from_secs(60 * 60) }
    }
}

/// The claim of an organization that reserves next, of all its claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub request: RequestId,
    /// The organization, or the user without one.
    pub scope: String,
    /// When it entered the line, or last began to reserve.
    pub since: Time,
    /// When a claim of its organization last began to reserve; zero if none ever did.
    pub last_turn: Time,
    /// The organization does not reserve before this time.
    pub paused_until: Time,
}

/// A reservation as it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// When it ends.
    pub until: Time,
    /// When the organization may reserve again, if the claim does not start before.
    pub paused_until: Time,
}

impl Rules {
    /// Returns a reservation that begins now.
    pub fn begin(&self, now: Time) -> Reservation {
        let until = now.after(self.reserve_for);
        Reservation { until, paused_until: until.after(self.reserve_for) }
    }

    /// Returns when a claim may reserve if no other does.
    pub fn turn_of(&self, candidate: &Candidate) -> Time {
        candidate.since.after(self.reserve_after).max(candidate.paused_until)
    }

    /// Returns the claim that reserves next, and when: while no claim reserves, it begins at that time. Organizations
    /// take turns: the one whose last turn is longest ago comes first.
    pub fn next_turn<'c>(&self, now: Time, candidates: &'c [Candidate]) -> Option<(&'c Candidate, Time)> {
        let due = candidates.iter().filter(|candidate| self.turn_of(candidate) <= now);
        let first = due.min_by_key(|candidate| (candidate.last_turn, candidate.since, &candidate.request));
        let first = first.or_else(|| candidates.iter().min_by_key(|other| (self.turn_of(other), &other.request)));
        first.map(|candidate| (candidate, self.turn_of(candidate)))
    }
}

#[cfg(test)]
mod tests;
