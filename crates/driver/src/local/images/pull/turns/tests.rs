//! Turns with a clock that the test owns: time passes only while every task waits.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use super::*;

fn progress() -> Progress {
    Progress::new("image".into(), 1, 1, watch::channel(String::new()).0)
}

/// Transfers a layer that takes so many seconds of its own time; returns after how many seconds it was done.
async fn transfer(turns: &Turns, share: &Arc<str>, seconds: u64) -> Result<u64, TransferEnd> {
    let (began, progress, mut layer) = (Instant::now(), progress(), turns.enter(share));
    layer.wait_until_begun().await;
    layer.acquire_place(&progress).await?;
    for _ in 0..seconds * 10 {
        layer.in_turns(&progress, sleep(Duration::from_millis(100))).await?;
    }
    layer.finish();
    Ok(began.elapsed().as_secs())
}

fn share(name: &str) -> Arc<str> {
    name.into()
}

/// Layers that hold all places for hours delay another share by a turn only, and end as well.
#[tokio::test(start_paused = true)]
async fn slow_layers_delay_no_other_share() {
    let (turns, slow, other) = (Turns::default(), share("slow"), share("other"));
    let hours = 2 * 60 * 60;
    let long = || transfer(&turns, &slow, hours);
    let short = async {
        sleep(Duration::from_secs(60)).await;
        let one = transfer(&turns, &other, 1).await.unwrap();
        let (two, three) = tokio::join!(transfer(&turns, &other, 1), transfer(&turns, &other, 1));
        [one, two.unwrap(), three.unwrap()]
    };
    let (one, two, three, short) = tokio::join!(long(), long(), long(), short);
    assert!(short.iter().all(|seconds| *seconds <= 5), "{short:?}");
    for done in [one, two, three] {
        assert!((hours..hours + 60).contains(&done.unwrap()));
    }
}

/// A share with many layers gets as much time as a share with one, beside the places that nobody else wants.
#[tokio::test(start_paused = true)]
async fn shares_get_the_same_time() {
    let turns = Turns::default();
    let used: [AtomicU64; 4] = Default::default();
    let use_turns = async |name: usize| {
        let (progress, mut layer) = (progress(), turns.enter(&share(&name.to_string())));
        layer.wait_until_begun().await;
        layer.acquire_place(&progress).await.unwrap();
        loop {
            layer.in_turns(&progress, sleep(Duration::from_millis(100))).await.unwrap();
            used[name].fetch_add(1, Ordering::Relaxed);
        }
    };
    let all =
        async { tokio::join!(use_turns(0), use_turns(0), use_turns(0), use_turns(1), use_turns(2), use_turns(3),) };
    let _end = tokio::time::timeout(Duration::from_secs(400), all).await;
    let used = used.map(|count| count.load(Ordering::Relaxed) / 10);
    assert!(used.iter().all(|seconds| (270..=310).contains(seconds)), "three places for four shares: {used:?}");
}

/// A share never has more than its part of the layers that have begun, and makes room for shares that have none.
#[tokio::test(start_paused = true)]
async fn share_makes_room_for_others() {
    let turns = Turns::default();
    let names = ["a", "b", "c"].map(share);
    let full: Vec<_> = names.iter().flat_map(|name| (0..5).map(|_| turns.enter(name))).collect();
    assert_eq!(full.iter().filter(|layer| layer.has_begun()).count(), MAX_BEGUN);
    assert!(!full[4].has_begun(), "the fifth of a share waits");
    let late = turns.enter(&share("late"));
    assert!(!late.has_begun());
    let given_up: Vec<_> = full.iter().map(|layer| turns.0.lock().entry(layer.number).gives_up).collect();
    assert_eq!(given_up.iter().filter(|gives_up| **gives_up).count(), 1, "{given_up:?}");
    let index = given_up.iter().position(|gives_up| *gives_up).unwrap();
    let mut full = full;
    let mut victim = full.remove(index);
    assert_eq!(victim.acquire_place(&progress()).await, Err(TransferEnd::GivenUp));
    drop(victim);
    tokio::time::timeout(TURN, late.wait_until_begun()).await.expect("a share without any comes first");
    drop((full, late));
    let state = turns.0.lock();
    assert!(state.layers.is_empty() && state.used.is_empty());
}

/// A layer that stops waiting leaves nothing behind, and its place goes to the next.
#[tokio::test(start_paused = true)]
async fn dropped_layer_frees_its_place() {
    let (turns, name) = (Turns::default(), share("a"));
    let mut held: Vec<_> = (0..PLACES).map(|_| turns.enter(&name)).collect();
    for layer in &mut held {
        layer.acquire_place(&progress()).await.unwrap();
    }
    let mut next = turns.enter(&share("b"));
    let progress = progress();
    assert!(tokio::time::timeout(TURN, next.acquire_place(&progress)).await.is_err());
    held.pop();
    tokio::time::timeout(TURN, next.acquire_place(&progress)).await.expect("the place is free").unwrap();
}

#[tokio::test]
async fn transfer_below_minimum_rate_is_aborted() {
    let turns = Turns::default();
    let mut layer = turns.enter(&share("a"));
    assert_eq!(layer.record_transfer(0, RATE_WINDOW / 2), Ok(()), "the rate is not checked before the window ends");
    assert_eq!(layer.record_transfer(MIN_RATE * 60, RATE_WINDOW / 2), Ok(()));
    assert_eq!(layer.record_transfer((MIN_RATE - 1) * 60, RATE_WINDOW), Err(TransferEnd::BelowMinimumRate));
}
