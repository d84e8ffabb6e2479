//! The kill test: `kill -9` at random moments while calls are in flight and requests of every type are under way. After a
//! restart every acknowledged request ends, every acknowledged object is there, and what the fake's world file holds equals
//! what the database says.
//!
//! `TARN_KILL_ROUNDS` and `TARN_KILL_SEED` set how often and how; `make soak` runs the full count.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of the real program measures real time and reads the environment"
)]

mod engine;
mod workload;

use std::collections::BTreeMap;
use std::time::Duration;

use tarn_model::Ids;
use tarn_store::testing::{DatabaseKind, SeededIds, fresh};

use engine::Tarn;
use workload::Workload;

/// With so many rounds every kind of request must have been under way.
const MANY: u64 = 20;

const TYPES: [&str; 9] = [
    "CLUSTER_CLAIM",
    "CLUSTER_RELEASE",
    "CLUSTER_EDIT",
    "CLUSTER_RESTART",
    "STORAGE_CREATE",
    "STORAGE_DESTROY",
    "STORAGE_ATTACH",
    "STORAGE_DETACH",
    "STORAGE_EDIT",
];

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_left_on_sqlite() {
    kill_rounds(DatabaseKind::Sqlite, number("TARN_KILL_ROUNDS", 20)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_left_on_postgresql() {
    kill_rounds(DatabaseKind::Postgres, number("TARN_KILL_ROUNDS", 20).div_ceil(4)).await;
}

async fn kill_rounds(engine: DatabaseKind, rounds: u64) {
    let Some(home) = fresh(engine).await else { return };
    let seed = number("TARN_KILL_SEED", 20_261_115);
    println!("seed {seed}, {rounds} rounds on {engine:?}");
    let chance = SeededIds::new(seed);
    let (mut workload, mut round) = (Workload::default(), 0);
    // On a busy machine little happens in a life of the program: then it has more of them, until enough has happened.
    while round < rounds || (rounds >= MANY && round < 3 * rounds && missing(&workload, rounds).is_some()) {
        let tarn = Tarn::start(&home, chance.bits()).await;
        let life = Duration::from_millis(50 + chance.bits() % 700);
        workload.run_until_killed(&tarn, life, &chance).await;
        drop(tarn);
        let tarn = Tarn::start(&home, chance.bits()).await;
        workload.settle(&tarn).await;
        let differences = tarn.differences(&home).await;
        assert!(differences.is_empty(), "round {round} of seed {seed}: {differences:#?}");
        round += 1;
    }
    let counts: &BTreeMap<String, u64> = &workload.ended;
    println!("requests that ended, by type and status: {counts:#?}");
    if rounds >= MANY {
        assert_eq!(missing(&workload, rounds), None, "after {round} rounds");
    }
}

/// What has not happened yet, without which the kills show nothing.
fn missing(workload: &Workload, rounds: u64) -> Option<String> {
    let was_seen = |kind: &&&str| workload.ended.keys().any(|key| key.starts_with(**kind));
    if let Some(kind) = TYPES.iter().find(|kind| !was_seen(kind)) {
        return Some(format!("no {kind} was ever acknowledged"));
    }
    let open = workload.open_at_kill;
    (open <= rounds).then(|| format!("the kills came too late to matter: {open}"))
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}
