//! The rule of the line: single situations, and properties of whole histories in which capacity is freed.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::capacity::Gpu;

const MINUTE: Duration = Duration::from_secs(60);

fn inventory() -> Inventory {
    let gpu = |n: u32| Gpu { id: format!("gpu-{n}"), model: "H100".into(), simulated: true };
    Inventory { cpu_milli: 8_000, memory_bytes: 8 << 30, gpus: (0..8).map(gpu).collect(), storage_bytes: 0 }
}

fn cpus(count: u64) -> Claim {
    Claim { shape: Shape { cpu_milli: 1000 * count, memory_bytes: 1, gpus: 0, gpu_model: None }, nodes: 1 }
}

fn gpus(count: u32) -> Claim {
    let shape = Shape { cpu_milli: 100, memory_bytes: 1, gpus: count, gpu_model: Some("H100".into()) };
    Claim { shape, nodes: 1 }
}

fn id(number: usize) -> RequestId {
    format!("r-{number:012}").parse().unwrap()
}

fn at(minutes: u64) -> Time {
    Time::ZERO.after(MINUTE * u32::try_from(minutes).unwrap())
}

/// Claims that wait, oldest first, each with the name of its organization.
fn line(claims: &[(&str, Claim)]) -> Vec<Waiting> {
    let waiting = |(number, (scope, claim)): (usize, &(&str, Claim))| Waiting {
        place: Place { request: id(number), scope: (*scope).to_owned(), since: at(number as u64) },
        claim: claim.clone(),
    };
    claims.iter().enumerate().map(waiting).collect()
}

/// A host of which this many CPUs and GPUs are held, and this many of them are being released.
fn held(cpus: u64, gpus: u32) -> HeldCapacity {
    let gpus = (0..gpus).map(|n| format!("gpu-{n}")).collect();
    HeldCapacity { cpu_milli: 1000 * cpus, gpus, ..HeldCapacity::default() }
}

fn starts(
    held: &HeldCapacity,
    releasing: &HeldCapacity,
    holdings: &Holdings,
    reserving: Option<usize>,
    waiting: &[Waiting],
) -> Vec<usize> {
    let inventory = inventory();
    let host = Host { inventory: &inventory, held, releasing };
    let examined = examine(host, holdings, reserving.map(id).as_ref(), waiting);
    let number = |start: Start| waiting.iter().position(|one| one.place.request == start.request).unwrap();
    examined.starts.into_iter().map(number).collect()
}

fn holds(scope: &str, cpus: u64) -> (String, Holding) {
    (scope.to_owned(), Holding { cpu_milli: cpus * 1000, ..Holding::default() })
}

#[test]
fn later_claim_takes_what_is_free() {
    let (held, nothing) = (held(7, 0), HeldCapacity::default());
    let waiting = line(&[("a", cpus(2)), ("b", cpus(1)), ("b", cpus(1))]);
    assert_eq!(starts(&held, &nothing, &Holdings::new(), None, &waiting), [1]);
    let closed = HeldCapacity { closed: Some("drained".into()), ..held };
    assert!(starts(&closed, &nothing, &Holdings::new(), None, &waiting).is_empty());
}

#[test]
fn release_keeps_capacity_for_the_head() {
    let (waiting, none) = (line(&[("a", cpus(2)), ("b", cpus(1))]), Holdings::new());
    assert!(starts(&held(7, 0), &held(1, 0), &none, None, &waiting).is_empty(), "the second CPU is being released");
    assert_eq!(starts(&held(7, 0), &held(2, 0), &none, None, &waiting), [1], "enough is released for both");
    let waiting = line(&[("a", cpus(4)), ("b", cpus(1))]);
    assert_eq!(starts(&held(7, 0), &held(1, 0), &none, None, &waiting), [1], "the head would not fit either");
    let waiting = line(&[("a", gpus(2)), ("b", gpus(1)), ("c", cpus(1))]);
    assert_eq!(starts(&held(0, 7), &held(0, 1), &none, None, &waiting), [2], "other resources are not kept");
}

#[test]
fn reserving_claim_is_not_overtaken() {
    let (nothing, none) = (HeldCapacity::default(), Holdings::new());
    let waiting = line(&[("b", cpus(1)), ("a", cpus(2)), ("b", gpus(1))]);
    assert_eq!(starts(&held(7, 0), &nothing, &none, None, &waiting), [0]);
    assert!(starts(&held(7, 0), &nothing, &none, Some(1), &waiting).is_empty(), "a GPU comes with a CPU");
    assert_eq!(starts(&held(5, 0), &nothing, &none, Some(1), &waiting), [1, 0], "it comes first when it fits");
    let waiting = line(&[("a", gpus(8)), ("b", gpus(2)), ("b", cpus(6))]);
    assert_eq!(starts(&held(0, 4), &nothing, &none, Some(0), &waiting), [2], "more than it needs is free");
}

#[test]
fn nothing_is_kept_for_a_claim_that_cannot_start() {
    let waiting = line(&[("a", gpus(8)), ("b", gpus(2))]);
    let away = BTreeMap::from([("gpu-7".to_owned(), "drained".to_owned())]);
    let held = HeldCapacity { withheld: away, ..held(0, 1) };
    assert_eq!(starts(&held, &HeldCapacity::default(), &Holdings::new(), Some(0), &waiting), [1]);
}

#[test]
fn organization_that_holds_least_comes_first() {
    let nothing = HeldCapacity::default();
    let waiting = line(&[("a", cpus(1)), ("a", cpus(1)), ("b", cpus(1)), ("c", cpus(1))]);
    let holdings = Holdings::from([holds("a", 3), holds("b", 2)]);
    assert_eq!(starts(&held(5, 0), &nothing, &holdings, None, &waiting), [3, 2, 0]);
    let holdings = Holdings::from([holds("a", 3), holds("c", 6)]);
    let equal = line(&[("b", cpus(1)), ("b", cpus(1)), ("a", cpus(1)), ("c", cpus(1))]);
    assert_eq!(starts(&held(6, 0), &nothing, &holdings, None, &equal), [0, 1], "two more leave it with less");
    let gpu = Holdings::from([("b".to_owned(), Holding { gpus: 4, ..Holding::default() }), holds("a", 3)]);
    let both = line(&[("b", cpus(1)), ("a", cpus(1))]);
    assert_eq!(starts(&held(7, 4), &nothing, &gpu, None, &both), [1], "half of the GPUs are more than 3 of 8 CPUs");
    let mut places: Vec<Place> = both.into_iter().map(|one| one.place).collect();
    sort(&mut places, &inventory(), &gpu, None);
    assert_eq!([&places[0].scope, &places[1].scope], ["a", "b"]);
    sort(&mut places, &inventory(), &gpu, Some(&id(0)));
    assert_eq!([&places[0].scope, &places[1].scope], ["b", "a"], "the one that reserves is the first");
}

#[test]
fn room_is_what_a_new_claim_would_get() {
    let (inventory, held, nothing) = (inventory(), held(4, 0), HeldCapacity::default());
    let host = Host { inventory: &inventory, held: &held, releasing: &nothing };
    let room = |waiting: &[Waiting], reserving: Option<usize>| {
        let examined = examine(host, &Holdings::new(), reserving.map(id).as_ref(), waiting);
        examined.count_room(&cpus(1).shape)
    };
    assert_eq!((room(&[], None), room(&line(&[("a", cpus(8))]), None)), (4, 4));
    assert_eq!(room(&line(&[("a", cpus(8))]), Some(0)), 0);
    assert_eq!(room(&line(&[("a", cpus(3))]), None), 1, "it is about to start");
}

fn candidate(number: usize, scope: &str, since: u64, [last, paused]: [u64; 2]) -> Candidate {
    let (last_turn, paused_until) = (at(last), at(paused));
    Candidate { request: id(number), scope: scope.into(), since: at(since), last_turn, paused_until }
}

#[test]
fn organizations_take_turns() {
    let rules = Rules::default();
    let turn = |now: u64, all: &[Candidate]| {
        rules.next_turn(at(now), all).map(|(first, time)| (first.scope.clone(), time.as_micros() / 60_000_000))
    };
    assert_eq!(turn(50, &[]), None);
    let fresh = [candidate(0, "a", 10, [0, 0]), candidate(1, "b", 5, [0, 0])];
    assert_eq!(turn(20, &fresh), Some(("b".into(), 35)), "it is told when");
    assert_eq!(turn(50, &fresh), Some(("b".into(), 35)), "the oldest begins");
    let again = [candidate(0, "a", 10, [0, 0]), candidate(1, "b", 5, [40, 0])];
    assert_eq!(turn(50, &again), Some(("a".into(), 40)), "b had its turn");
    let paused = [candidate(1, "b", 40, [40, 160])];
    assert_eq!(turn(100, &paused), Some(("b".into(), 160)), "an organization pauses for as long as it reserved");
    let began = rules.begin(at(40));
    assert_eq!((began.until, began.paused_until), (at(100), at(160)));
}

/// A claim of a history.
#[derive(Clone, Debug)]
struct Arrival {
    minute: u64,
    organization: usize,
    claim: Claim,
    /// How long its cluster runs before it is destroyed.
    runs: u64,
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let claim = prop_oneof![(1u64..=8).prop_map(cpus), (1u32..=8).prop_map(gpus), Just(cpus(1)), Just(gpus(1))];
    let arrival = (0u64..180, 0usize..3, claim, 1u64..=50);
    let arrival = arrival.prop_map(|(minute, organization, claim, runs)| Arrival { minute, organization, claim, runs });
    proptest::collection::vec(arrival, 1..40)
}

/// What is known about one claim while a history is played.
#[derive(Clone, Debug, Default)]
struct Played {
    started: Option<u64>,
    gpus: Vec<String>,
    /// When it entered the line, or last began to reserve.
    turn: Time,
    reserved_until: Time,
}

/// The minutes that the destruction of a cluster takes.
const DESTRUCTION: u64 = 5;

/// A history with a minute as its step. The clusters are destroyed after their time; nothing else ends.
struct History {
    arrivals: Vec<Arrival>,
    played: Vec<Played>,
    /// The last turn and the end of the pause of each organization.
    turns: [(Time, Time); 3],
    rules: Rules,
}

impl History {
    fn new(arrivals: Vec<Arrival>) -> Self {
        let entered = |arrival: &Arrival| Played { turn: at(arrival.minute), ..Played::default() };
        let played = arrivals.iter().map(entered).collect();
        History { arrivals, played, turns: [(Time::ZERO, Time::ZERO); 3], rules: Rules::default() }
    }

    fn waits(&self, number: usize, minute: u64) -> bool {
        self.arrivals[number].minute <= minute && self.played[number].started.is_none()
    }

    /// What is held at this minute, and the part of it that is being released.
    fn held(&self, minute: u64) -> [HeldCapacity; 2] {
        let [mut held, mut releasing] = [HeldCapacity::default(), HeldCapacity::default()];
        for (arrival, played) in self.arrivals.iter().zip(&self.played) {
            let Some(started) = played.started else { continue };
            let ends = started + arrival.runs;
            for part in [(minute < ends + DESTRUCTION, &mut held), (minute >= ends, &mut releasing)] {
                if part.0 && minute < ends + DESTRUCTION {
                    part.1.cpu_milli += arrival.claim.shape.cpu_milli;
                    part.1.memory_bytes += arrival.claim.shape.memory_bytes;
                    part.1.gpus.extend(played.gpus.iter().cloned());
                }
            }
        }
        [held, releasing]
    }

    fn line(&self, minute: u64) -> Vec<Waiting> {
        let waiting = (0..self.arrivals.len()).filter(|number| self.waits(*number, minute)).map(|number| Waiting {
            place: Place {
                request: id(number),
                scope: self.arrivals[number].organization.to_string(),
                since: at(self.arrivals[number].minute),
            },
            claim: self.arrivals[number].claim.clone(),
        });
        waiting.collect()
    }

    fn holdings(&self, minute: u64) -> Holdings {
        let mut holdings = Holdings::new();
        for (arrival, played) in self.arrivals.iter().zip(&self.played) {
            let ends = played.started.map(|started| started + arrival.runs + DESTRUCTION);
            if ends.is_some_and(|ends| minute < ends) {
                holdings.entry(arrival.organization.to_string()).or_default().add(&arrival.claim);
            }
        }
        holdings
    }

    /// Returns the claim that reserves at this minute; begins a reservation if it is the turn of a claim.
    fn reserving(&mut self, minute: u64) -> Option<usize> {
        let waiting: Vec<usize> = (0..self.arrivals.len()).filter(|number| self.waits(*number, minute)).collect();
        if let Some(now) = waiting.iter().find(|number| self.played[**number].reserved_until > at(minute)) {
            return Some(*now);
        }
        let of = |organization: usize| {
            let own = waiting.iter().filter(|number| self.arrivals[**number].organization == organization);
            let first = *own.min_by_key(|number| (self.played[**number].turn, **number))?;
            let (last_turn, paused_until) = self.turns[organization];
            let (scope, since) = (organization.to_string(), self.played[first].turn);
            Some(Candidate { request: id(first), scope, since, last_turn, paused_until })
        };
        let candidates: Vec<Candidate> = (0..3).filter_map(of).collect();
        let (first, begins) = self.rules.next_turn(at(minute), &candidates)?;
        let number = waiting.into_iter().find(|number| id(*number) == first.request)?;
        if begins > at(minute) {
            return None;
        }
        let reservation = self.rules.begin(at(minute));
        (self.played[number].turn, self.played[number].reserved_until) = (at(minute), reservation.until);
        self.turns[self.arrivals[number].organization] = (at(minute), reservation.paused_until);
        Some(number)
    }

    /// Plays one minute, and checks what holds at every moment.
    fn play(&mut self, minute: u64) -> Result<(), TestCaseError> {
        let (inventory, reserving) = (inventory(), self.reserving(minute));
        let ([held, releasing], holdings, line) = (self.held(minute), self.holdings(minute), self.line(minute));
        let host = Host { inventory: &inventory, held: &held, releasing: &releasing };
        let examined = examine(host, &holdings, reserving.map(id).as_ref(), &line);
        let before = Free::after_held(&inventory, &held);
        for start in &examined.starts {
            let number = line.iter().position(|one| one.place.request == start.request);
            let number = (0..self.played.len()).find(|n| number.is_some() && id(*n) == start.request);
            let number = number.expect("only claims of the line start");
            self.played[number].started = Some(minute);
            self.played[number].gpus = start.gpus.iter().flatten().cloned().collect();
            if reserving == Some(number) {
                self.turns[self.arrivals[number].organization].1 = Time::ZERO;
            }
        }
        let [held, _] = self.held(minute);
        let after = Free::after_held(&inventory, &held);
        prop_assert!(held.cpu_milli <= inventory.cpu_milli && held.gpus.len() <= 8);
        let given: usize = examined.starts.iter().flat_map(|start| &start.gpus).map(Vec::len).sum();
        prop_assert_eq!(
            before.count_of(&gpus(1).shape.without_cpus()),
            after.count_of(&gpus(1).shape.without_cpus()) + given as u64
        );
        let left = examined.room.available();
        for number in (0..self.arrivals.len()).filter(|number| self.waits(*number, minute)) {
            let claim = &self.arrivals[number].claim;
            prop_assert!(left.check_claim(claim).is_err(), "claim {number} waits at {minute} although it fits");
        }
        // What others took during a reservation was not needed by the claim that reserves.
        if let Some(number) = reserving.filter(|number| self.played[*number].started.is_none()) {
            let need = &self.arrivals[number].claim.shape;
            let least =
                |free: &Free<'_>| (free.cpu_milli.min(need.cpu_milli), free.gpus_of("H100").min(need.gpus.into()));
            if examined.room.later.check_claim(&self.arrivals[number].claim).is_err() {
                prop_assert_eq!(least(&before), least(&after));
            }
        }
        Ok(())
    }

    /// The minutes after which a claim has started at the latest: `(M × (K + 1) + 1) × reserve_for` after it may
    /// reserve, where K organizations wait, and M is its place among the claims of its own organization.
    fn bound(&self, number: usize) -> u64 {
        let own = self.arrivals[number].organization;
        let claims = self.arrivals.iter().enumerate().filter(|(other, arrival)| {
            arrival.organization == own && (arrival.minute, *other) <= (self.arrivals[number].minute, number)
        });
        let minutes = |span: Duration| span.as_secs() / 60;
        minutes(self.rules.reserve_after) + (claims.count() as u64 * 4 + 1) * minutes(self.rules.reserve_for)
    }
}

impl Shape {
    fn without_cpus(self) -> Shape {
        Shape { cpu_milli: 0, memory_bytes: 0, ..self }
    }
}

impl Free<'_> {
    fn gpus_of(&self, model: &str) -> u64 {
        self.gpus.get(model).copied().unwrap_or(0)
    }
}

proptest! {
    /// No claim is overtaken for ever, and nothing that fits waits beside idle capacity.
    #[test]
    fn every_claim_starts_within_its_bound(arrivals in arrivals()) {
        let mut history = History::new(arrivals);
        let end = (0..history.arrivals.len()).map(|one| history.arrivals[one].minute + history.bound(one)).max();
        let end = end.unwrap_or_default();
        for minute in 0..=end {
            history.play(minute)?;
            if minute >= 180 && history.played.iter().all(|played| played.started.is_some()) {
                break;
            }
        }
        for (number, played) in history.played.iter().enumerate() {
            let waited = played.started.map(|started| started - history.arrivals[number].minute);
            prop_assert!(waited.is_some_and(|waited| waited <= history.bound(number)), "claim {number}: {waited:?}");
        }
    }
}

/// Without reservations the smaller claims of a stream overtake a large one for ever: the property needs them.
#[test]
fn stream_of_small_claims_does_not_starve_a_large_one() {
    let small = |minute: u64| Arrival { minute, organization: 1, claim: gpus(1), runs: 30 };
    let large = Arrival { minute: 3, organization: 0, claim: gpus(8), runs: 10 };
    let stream: Vec<_> = (0..400).map(|minute| small(minute * 3)).chain([large]).collect();
    let waits = |rules: Rules| {
        let mut history = History { rules, ..History::new(stream.clone()) };
        (0..600).try_for_each(|minute| history.play(minute)).unwrap();
        history.played.last().unwrap().started.map(|started| started - 3)
    };
    let waited = waits(Rules::default()).expect("it starts");
    assert!((30..=90).contains(&waited), "{waited} minutes");
    assert_eq!(waits(Rules { reserve_after: MINUTE * 100_000, ..Rules::default() }), None);
}
