//! A database server that hangs: every call ends, no outcome is invented, and everything goes on when it responds again.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use futures::poll;
use tarn_store::testing::{DatabaseKind, Held, Proxy, World, fresh};
use tarn_store::{Error, Store, Tx, backup, installation};
use tokio::time::Instant;

/// No call takes as long: one that does has no limit of its own.
const FOREVER: Duration = Duration::from_secs(60);

/// A store on a server that can hang.
async fn world() -> Option<(World, Arc<Proxy>)> {
    let mut fresh = fresh(DatabaseKind::Postgres).await?;
    let proxy = Proxy::before(&mut fresh).await;
    Some((World::on(fresh).await, Arc::new(proxy)))
}

async fn value_of(world: &World, key: &'static str) -> Option<String> {
    world.store.read(move |tx| installation::get(tx, key)).await.expect("the server responds")
}

fn is_unavailable<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Unavailable(_)))
}

/// More calls than there are connections all end when the server hangs, those inside of a transaction too. Afterwards no
/// connection that was waiting is used again, and nothing that was refused is stored.
#[tokio::test(flavor = "multi_thread")]
async fn every_call_ends_while_server_hangs() {
    let Some((world, proxy)) = world().await else { return };
    // The first statement works, and the server hangs at the second one. Its error is ignored, as some code might.
    let (store, holder) = (world.store.clone(), proxy.clone());
    let inside = tokio::spawn(async move {
        let write = store.write(move |tx: &mut Tx<'_>| -> Result<(), Error> {
            installation::set(tx, "first", "1")?;
            holder.hold(Held::Everything);
            let _ = installation::set(tx, "second", "2");
            let _ = installation::get(tx, "first");
            Ok(())
        });
        write.await
    });
    let calls = async {
        proxy.holds(Held::Everything).await;
        join_all((0..20).map(|_| world.store.read(|tx| installation::get(tx, "first")))).await
    };
    let ended = tokio::time::timeout(FOREVER, async { tokio::join!(inside, calls) }).await;
    let (inside, calls) = ended.expect("every call has a limit");
    let inside = inside.unwrap();
    assert!(is_unavailable(&inside), "{inside:?}");
    assert!(calls.iter().all(is_unavailable), "{calls:?}");

    proxy.hold(Held::Nothing);
    assert_eq!([value_of(&world, "first").await, value_of(&world, "second").await], [None, None]);
    let closed = async {
        while proxy.open_connections() > 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(FOREVER, closed).await.expect("the connections that were waiting are closed");
    world.store.write(|tx| installation::set(tx, "first", "3")).await.unwrap();
}

/// A ping ends within two seconds of the paused clock, while a call that began before it still waits.
#[tokio::test(flavor = "multi_thread")]
async fn ping_does_not_wait_for_calls() {
    let Some((world, proxy)) = world().await else { return };
    world.store.ping().await.unwrap();
    proxy.hold(Held::Everything);
    let store = world.store.clone();
    // The time of this runtime goes on only when all of its work waits, so the order is that of the limits. The
    // connections belong to the other runtime.
    let measured = tokio::task::spawn_blocking(move || {
        let paused = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        paused.block_on(async {
            let began = Instant::now();
            let mut call = pin!(store.read(|tx| installation::get(tx, "first")));
            assert!(poll!(&mut call).is_pending());
            for _ in 0..2 {
                let asked = Instant::now();
                tokio::select! {
                    biased;
                    ended = &mut call => panic!("the call waits longer than the ping: {ended:?}"),
                    pinged = store.ping() => assert!(is_unavailable(&pinged), "{pinged:?}"),
                }
                assert!(asked.elapsed() <= Duration::from_secs(2), "{:?}", asked.elapsed());
            }
            assert!(is_unavailable(&call.await));
            began.elapsed()
        })
    });
    let whole = measured.await.unwrap();
    assert!((Duration::from_secs(5)..=Duration::from_secs(11)).contains(&whole), "{whole:?}");
    proxy.hold(Held::Nothing);
    world.store.ping().await.unwrap();
}

/// A command that reads a whole database may take longer than any call of an engine.
#[tokio::test(flavor = "multi_thread")]
async fn lifted_limit_lets_a_transaction_take_its_time() {
    let Some((world, proxy)) = world().await else { return };
    world.store.write(|tx| installation::set(tx, "first", "1")).await.unwrap();
    let (store, holder) = (world.store.clone(), proxy.clone());
    let inside = tokio::spawn(async move {
        let read = store.read(move |tx: &mut Tx<'_>| -> Result<_, Error> {
            backup::lift_limit(tx)?;
            holder.hold(Held::Everything);
            installation::get(tx, "first")
        });
        read.await
    });
    proxy.holds(Held::Everything).await;
    // This call begins later and has the limit, so what ends after it had none.
    let limited = tokio::time::timeout(FOREVER, world.store.read(|tx| installation::get(tx, "first"))).await;
    assert!(is_unavailable(&limited.expect("the call has a limit")));
    assert!(!inside.is_finished());
    proxy.hold(Held::Nothing);
    let inside = tokio::time::timeout(FOREVER, inside).await.expect("the server responds").unwrap();
    assert_eq!(inside.unwrap().as_deref(), Some("1"));
}

/// A commit whose response does not arrive is neither a success nor a refusal, and it may have been carried out.
#[tokio::test(flavor = "multi_thread")]
async fn commit_without_response_is_unavailable() {
    let Some((world, proxy)) = world().await else { return };
    let holder = proxy.clone();
    let write = world.store.write(move |tx: &mut Tx<'_>| -> Result<(), Error> {
        installation::set(tx, "stored", "yes")?;
        holder.hold(Held::Responses);
        Ok(())
    });
    let written = tokio::time::timeout(FOREVER, write).await.expect("the commit has a limit");
    assert!(is_unavailable(&written), "{written:?}");
    assert!(written.unwrap_err().to_string().contains("whether a change was stored is not known"));
    proxy.hold(Held::Nothing);
    assert_eq!(value_of(&world, "stored").await.as_deref(), Some("yes"));
}

/// A ping says that the server hangs before any transaction gives up, although these wait for all connections. It
/// says that the server responds as soon as it does.
#[tokio::test(flavor = "multi_thread")]
async fn ping_does_not_wait_for_connections() {
    let Some((world, proxy)) = world().await else { return };
    world.store.ping().await.unwrap();
    proxy.hold(Held::Everything);
    let calls = join_all((0..20).map(|_| world.store.read(|tx| installation::get(tx, "first"))));
    let pings = join_all((0..20).map(|_| world.store.ping()));
    tokio::select! {
        pings = pings => assert!(pings.iter().all(is_unavailable), "{pings:?}"),
        calls = calls => panic!("a ping waits longer than transactions: {calls:?}"),
    }
    proxy.hold(Held::Nothing);
    world.store.ping().await.unwrap();
}

/// A command may give its transactions more time than others have, and only then waits longer than they do.
#[tokio::test(flavor = "multi_thread")]
async fn command_has_another_limit() {
    let Some((world, _proxy)) = world().await else { return };
    let (clock, ids) = (world.clock.clone(), world.ids.clone());
    let patient = Store::open(&world.fresh.database, clock, ids).await.unwrap();
    patient.limit_transactions(FOREVER);
    world.store.limit_transactions(Duration::from_millis(300));
    let (locked, is_locked) = std::sync::mpsc::channel();
    let (unlock, until_unlocked) = std::sync::mpsc::channel::<()>();
    let until_unlocked = std::sync::Mutex::new(until_unlocked);
    let holder = tokio::spawn({
        let patient = patient.clone();
        async move {
            let write = patient.write(move |_: &mut Tx<'_>| -> Result<(), Error> {
                locked.send(()).unwrap();
                until_unlocked.lock().unwrap().recv().unwrap();
                Ok(())
            });
            write.await
        }
    });
    tokio::task::block_in_place(|| is_locked.recv_timeout(FOREVER)).unwrap();
    // Writers run one after the other. Three times the shorter limit pass meanwhile.
    let waiting = tokio::spawn({
        let patient = patient.clone();
        async move { patient.write(|tx| installation::set(tx, "patient", "yes")).await }
    });
    for _ in 0..3 {
        let refused = world.store.write(|tx| installation::set(tx, "impatient", "yes")).await;
        assert!(is_unavailable(&refused), "{refused:?}");
    }
    unlock.send(()).unwrap();
    holder.await.unwrap().unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(value_of(&world, "patient").await.as_deref(), Some("yes"));
    assert_eq!(value_of(&world, "impatient").await, None);
}
