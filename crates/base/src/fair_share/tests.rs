use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use proptest::prelude::*;

use super::*;

/// Asserts that every permit is back and no key is remembered.
fn assert_unused<K: Eq + Hash + std::fmt::Debug>(shares: &FairShare<K>, total: usize) {
    assert_eq!(shares.0.total.available_permits(), total, "every permit was returned");
    assert!(shares.0.keys.lock().is_empty(), "a key without permits is forgotten");
}

#[test]
fn key_cannot_take_all_permits() {
    let shares = FairShare::new(3, 2);
    let held = [shares.try_acquire(&"one", 1).unwrap(), shares.try_acquire(&"one", 1).unwrap()];
    assert_eq!(shares.try_acquire(&"one", 1).unwrap_err(), UsedUp::Share);
    let other = shares.try_acquire(&"two", 1).unwrap();
    assert_eq!(shares.try_acquire(&"two", 1).unwrap_err(), UsedUp::Total);
    assert_eq!(shares.try_acquire(&"three", 1).unwrap_err(), UsedUp::Total);
    assert_eq!(shares.0.keys.lock().len(), 2, "a refused key is forgotten");
    drop(held);
    drop(shares.try_acquire(&"one", 2).unwrap());
    drop(other);
    assert_unused(&shares, 3);
}

#[test]
fn waiting_for_own_share_holds_nothing_of_the_total() {
    let shares = FairShare::new(3, 2);
    let held = shares.try_acquire(&1, 1).unwrap();
    let mut waiting = Box::pin(shares.acquire(&1, 2));
    assert!(waiting.as_mut().now_or_never().is_none());
    let other = shares.try_acquire(&2, 2).unwrap();
    drop(held);
    assert!(waiting.as_mut().now_or_never().is_none(), "now it waits for the total");
    drop(other);
    drop(waiting.now_or_never().unwrap());
    assert_unused(&shares, 3);
}

#[test]
fn caller_that_stops_waiting_leaves_nothing_behind() {
    let shares = FairShare::new(2, 1);
    let held = [shares.try_acquire(&1, 1).unwrap(), shares.try_acquire(&2, 1).unwrap()];
    let (mut own, mut total) = (Box::pin(shares.acquire(&1, 1)), Box::pin(shares.acquire(&3, 1)));
    assert!(own.as_mut().now_or_never().is_none() && total.as_mut().now_or_never().is_none());
    drop((own, total));
    assert_eq!(shares.0.keys.lock().len(), 2);
    drop(held);
    assert_unused(&shares, 2);
}

#[test]
fn more_than_the_share_is_the_whole_share() {
    let shares = FairShare::new(2, 5);
    assert_eq!(shares.try_acquire(&1, usize::MAX).unwrap().count, 2);
    assert_eq!(shares.acquire(&1, 3).now_or_never().unwrap().count, 2);
    assert_unused(&shares, 2);
}

#[test]
fn permits_are_merged_and_split() {
    let shares = FairShare::new(10, 10);
    let mut held = shares.try_acquire(&1, 3).unwrap();
    held.merge(shares.try_acquire(&1, 4).unwrap());
    assert!(held.split(8).is_none());
    let part = held.split(5).unwrap();
    assert_eq!((held.count, part.count, shares.0.total.available_permits()), (2, 5, 3));
    drop(held);
    assert_eq!(shares.try_acquire(&1, 6).unwrap_err(), UsedUp::Share);
    drop(part);
    assert_unused(&shares, 10);
}

/// An old share may be removed only after the key has got a new one, which stays known.
#[test]
fn late_removal_of_an_old_share_keeps_the_new_one() {
    let shares = FairShare::new(2, 1);
    let old = Arc::new(Share { key: 1, own: Semaphore::new(1), pool: shares.0.clone() });
    let held = shares.try_acquire(&1, 1).unwrap();
    drop(old);
    assert_eq!(shares.try_acquire(&1, 1).unwrap_err(), UsedUp::Share);
    drop(held);
    assert_unused(&shares, 2);
}

/// The limits hold for callers on several threads, whose keys are forgotten and entered again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn limits_hold_between_threads() {
    const TOTAL: usize = 3;
    const SHARE: usize = 2;
    let shares = Arc::new(FairShare::new(TOTAL, SHARE));
    let in_use: Arc<[AtomicUsize; 3]> = Arc::default();
    let tasks: Vec<_> = (0..12)
        .map(|task| {
            let (shares, in_use) = (shares.clone(), in_use.clone());
            tokio::spawn(async move {
                for round in 0..500 {
                    let key = (task + round) % 2;
                    let permit = shares.acquire(&key, 1).await;
                    assert!(in_use[key].fetch_add(1, Ordering::SeqCst) < SHARE);
                    assert!(in_use[2].fetch_add(1, Ordering::SeqCst) < TOTAL);
                    tokio::task::yield_now().await;
                    in_use[2].fetch_sub(1, Ordering::SeqCst);
                    in_use[key].fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_unused(&shares, TOTAL);
}

#[derive(Clone, Debug)]
enum Step {
    Acquire { key: u8, count: usize },
    TryAcquire { key: u8, count: usize },
    StopWaiting(usize),
    Release(usize),
    Split(usize, usize),
    Merge(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..4_u8, 0..8_usize).prop_map(|(key, count)| Step::Acquire { key, count }),
        2 => (0..4_u8, 0..8_usize).prop_map(|(key, count)| Step::TryAcquire { key, count }),
        1 => any::<usize>().prop_map(Step::StopWaiting),
        3 => any::<usize>().prop_map(Step::Release),
        1 => (any::<usize>(), 0..8_usize).prop_map(|(at, count)| Step::Split(at, count)),
        1 => any::<(usize, usize)>().prop_map(|(to, from)| Step::Merge(to, from)),
    ];
    proptest::collection::vec(step, 0..60)
}

type Waiting<'a> = Pin<Box<dyn Future<Output = Permit<u8>> + 'a>>;

/// Moves the permits that have arrived from the waiting callers to the held ones. Returns how many there were.
fn poll_waiting(waiting: &mut Vec<Waiting<'_>>, held: &mut Vec<Permit<u8>>) -> usize {
    let before = held.len();
    waiting.retain_mut(|waiting| waiting.as_mut().now_or_never().map(|permit| held.push(permit)).is_none());
    held.len() - before
}

proptest! {
    #[test]
    fn limits_hold_and_every_caller_is_served(total in 1..12_usize, share in 1..8_usize, steps in steps()) {
        let shares = FairShare::new(total, share);
        let (mut waiting, mut held) = (Vec::<Waiting<'_>>::new(), Vec::<Permit<u8>>::new());
        for step in steps {
            match step {
                Step::Acquire { key, count } => {
                    let shares = &shares;
                    waiting.push(Box::pin(async move { shares.acquire(&key, count).await }));
                }
                Step::TryAcquire { key, count } => held.extend(shares.try_acquire(&key, count)),
                Step::StopWaiting(at) if !waiting.is_empty() => drop(waiting.remove(at % waiting.len())),
                Step::Release(at) if !held.is_empty() => drop(held.remove(at % held.len())),
                Step::Split(at, count) if !held.is_empty() => {
                    let at = at % held.len();
                    let part = held[at].split(count);
                    held.extend(part);
                }
                Step::Merge(to, from) if !held.is_empty() => {
                    let from = held.swap_remove(from % held.len());
                    let to = to % (held.len() + 1);
                    match held.get_mut(to) {
                        Some(to) if to.share.key == from.share.key => to.merge(from),
                        _ => held.push(from),
                    }
                }
                _ => {}
            }
            poll_waiting(&mut waiting, &mut held);
            prop_assert!(held.iter().map(|permit| permit.count).sum::<usize>() <= total);
            for key in 0..4 {
                let own = held.iter().filter(|permit| permit.share.key == key);
                prop_assert!(own.map(|permit| permit.count).sum::<usize>() <= share);
            }
        }
        held.clear();
        while !waiting.is_empty() {
            prop_assert!(poll_waiting(&mut waiting, &mut held) > 0, "a caller waits although all permits are free");
            held.clear();
        }
        drop(waiting);
        assert_unused(&shares, total);
    }
}
