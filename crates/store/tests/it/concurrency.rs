//! Concurrent writers: nothing is lost, nothing is done twice, and readers of the event log miss nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rstest::rstest;
use tarn_model::Money;
use tarn_model::ledger::{Account, Transfer};
use tarn_store::testing::DatabaseKind;
use tarn_store::{Error, clusters, events, ledger};

use crate::support::{cluster, granted, world};

/// Each of many concurrent writes counts once, and a reader of the event log misses nothing.
#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn writes_count_once(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let done = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn({
        let (store, done) = (world.store.clone(), done.clone());
        async move {
            let (mut last, mut seen) = (0, 0);
            loop {
                let finished = done.load(Ordering::SeqCst);
                let news = store.read(|tx| events::after(tx, last, 1000)).await.unwrap();
                seen += news.len();
                last = news.last().map_or(last, |event| event.number);
                if finished && news.is_empty() {
                    return seen;
                }
                tokio::task::yield_now().await;
            }
        }
    });
    let writers = (0..16).map(|writer| {
        let store = world.store.clone();
        tokio::spawn(async move {
            for n in 0..10 {
                let write = store.write(move |tx| -> Result<(), Error> {
                    let before = ledger::balance(tx, &Account::balance_of("o-1"))?;
                    let transfer = Transfer::grant("o-1", Money::from_micros(1), "one".into());
                    ledger::record(tx, &format!("t-{writer}-{n}"), "me", &transfer)?;
                    let after = before.as_micros() + 1;
                    tx.record("o-1", granted(after))
                });
                write.await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    assert_eq!(reader.await.unwrap(), 160, "a reader that follows the numbers misses nothing");
    let log = world.store.read(|tx| events::after(tx, 0, 1000)).await.unwrap();
    let counts: Vec<_> = log.iter().map(|event| event.detail["micros"].as_i64().unwrap()).collect();
    assert_eq!(counts, (1..=160).collect::<Vec<_>>(), "each write saw all earlier commits");
}

/// Writes that wait in the same task all finish, on the thread of the runtime's own `block_on`: a write that blocks
/// there must not consume the wake-ups of the others.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn writes_in_one_task_all_finish(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    for round in 0..100 {
        let calls = (0..8).map(|number| {
            let store = world.store.clone();
            async move {
                let write =
                    store.write(move |tx| -> Result<(), Error> { tx.record("o-1", granted(round * 8 + number)) });
                write.await.unwrap();
                store.read(|tx| events::after(tx, 0, 1)).await.unwrap()
            }
        });
        let all = futures::future::join_all(calls);
        let ended = tokio::time::timeout(std::time::Duration::from_secs(60), all).await;
        assert!(ended.is_ok(), "round {round}: a write waits for ever");
    }
}

/// A refused operation leaves nothing behind and does not affect others.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn refused_operation_leaves_nothing(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let (kept, lost) = (cluster(&*world.ids, &world.owner, "kept", 1), cluster(&*world.ids, &world.owner, "lost", 2));
    let (a, b) = (kept.clone(), lost.clone());
    let good = world.store.write(move |tx| clusters::insert(tx, &a));
    let bad = world.store.write(move |tx| -> Result<(), Error> {
        clusters::insert(tx, &b)?;
        Err(Error::Conflict)
    });
    let (good, bad) = tokio::join!(good, bad);
    assert!(good.is_ok() && matches!(bad, Err(Error::Conflict)));
    assert!(world.store.read(|tx| clusters::get(tx, &kept.id)).await.unwrap().is_some());
    assert!(world.store.read(|tx| clusters::get(tx, &lost.id)).await.unwrap().is_none());
}

/// A panicking operation does not end the writer.
#[tokio::test(flavor = "multi_thread")]
async fn writer_survives_panic() {
    let Some(world) = world(DatabaseKind::Sqlite).await else {
        return;
    };
    let panicked = world.store.write(|_| -> Result<(), Error> { panic!("on purpose") }).await;
    assert!(matches!(panicked, Err(Error::Database(_))));
    let made = cluster(&*world.ids, &world.owner, "heron", 1);
    world.store.write(move |tx| clusters::insert(tx, &made)).await.unwrap();
}
