//! The rows of the line: what an examination reads does not grow with the line, and no organization hides another.

use std::time::Duration;

use rstest::rstest;
use tarn_model::Time;
use tarn_model::capacity::{Claim, Shape};
use tarn_model::ids::{OrgId, RequestId};
use tarn_model::lifecycle::State;
use tarn_model::line::{Holding, Rules};
use tarn_model::requests::{Progress, Request, RequestKind};
use tarn_model::users::Owner;
use tarn_store::testing::DatabaseKind;
use tarn_store::{Error, Tx, clusters, instances, line, requests};

use crate::support::{World, cluster, instance, world};

/// Adds a claim of this many CPUs that entered the line at this second.
async fn enter(world: &World, owner: &Owner, cpus: u64, second: i64) -> Request {
    let (at, ids) = (Time::from_micros(second * 1_000_000), world.ids.clone());
    let cluster = cluster(&*ids, owner, &format!("heron-{}", RequestId::fresh(&*ids)), second);
    let shape = Shape { cpu_milli: cpus * 1000, memory_bytes: 1, gpus: 0, gpu_model: None };
    let node = tarn_model::clusters::Instance { shape: shape.clone(), ..instance(&*ids, &cluster.id, 0) };
    let request = Request {
        id: RequestId::fresh(&*ids),
        kind: RequestKind::ClaimCluster(cluster.id.clone()),
        owner: owner.clone(),
        progress: Progress::Queued,
        attempts: 0,
        due: at,
        deadline: Time::from_micros(i64::MAX),
        message: None,
        created: at,
        ended: None,
        epoch: 0,
    };
    let (claim, entered) = (Claim { shape, nodes: 1 }, request.clone());
    let write = world.store.write(move |tx| -> Result<(), Error> {
        clusters::insert(tx, &cluster)?;
        instances::insert(tx, &node)?;
        line::enter(tx, &entered, &claim)
    });
    write.await.unwrap();
    request
}

async fn write(world: &World, work: impl Fn(&mut Tx<'_>) -> Result<(), Error> + Send + 'static) {
    world.store.write(work).await.unwrap();
}

fn other(world: &World) -> Owner {
    Owner { org: Some(OrgId::fresh(&*world.ids)), ..world.owner.clone() }
}

/// Of equal claims of one organization only the oldest is examined, and claims behind it sleep.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn oldest_of_equal_claims_is_examined(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let (owner, others) = (world.owner.clone(), other(&world));
    let first = enter(&world, &owner, 2, 5).await;
    let second = enter(&world, &owner, 2, 6).await;
    let id = first.id.clone();
    write(&world, move |tx| line::set_examined(tx, &id)).await;
    for second in 7..107 {
        enter(&world, &owner, 2, second).await;
    }
    let different = enter(&world, &owner, 3, 200).await;
    let stranger = enter(&world, &others, 2, 300).await;
    let firsts = world.store.read(|tx| line::firsts(tx, 100)).await.unwrap();
    let mut found: Vec<_> = firsts.iter().map(|one| one.place.request.clone()).collect();
    found.sort();
    let mut oldest = vec![first.id.clone(), different.id.clone(), stranger.id.clone()];
    oldest.sort();
    assert_eq!(found, oldest);
    assert!(firsts.iter().any(|one| one.claim.shape.cpu_milli == 3000 && one.place.since == different.created));
    assert_eq!(world.store.read(|tx| line::firsts(tx, 2)).await.unwrap().len(), 2);
    let place = firsts.into_iter().find(|one| one.place.request == first.id).unwrap().place;
    let next = world.store.read(|tx| line::next_equals(tx, &place, 3)).await.unwrap();
    assert_eq!(next[0].place.request, second.id);
    let since: Vec<_> = next.iter().map(|one| one.place.since.as_micros() / 1_000_000).collect();
    assert_eq!(since, [6, 7, 8]);
    // The second one came before the first was examined; those that came later need not be examined themselves.
    world.clock.advance(Duration::from_secs(1_000));
    let due = world.store.write(|tx| requests::lease_due(tx, Duration::from_secs(9), 200)).await.unwrap();
    assert_eq!(due.len(), 4, "the first, the second, the one that needs more, and the stranger's");
    let scope = owner.scope().to_owned();
    assert_eq!(world.store.read(|tx| line::lengths_of(tx, &scope, 1000)).await.unwrap(), (101, 103));
    assert_eq!(world.store.read(|tx| line::lengths_of(tx, &scope, 50)).await.unwrap(), (49, 50), "up to the limit");
}

/// The turns of claims and organizations are kept, and only one claim reserves.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn turns_are_kept(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let (owner, others, rules) = (world.owner.clone(), other(&world), Rules::default());
    let first = enter(&world, &owner, 2, 5).await;
    let second = enter(&world, &owner, 3, 6).await;
    let stranger = enter(&world, &others, 2, 7).await;
    let candidates = async || {
        let mut all = world.store.read(|tx| line::candidates(tx, 10)).await.unwrap();
        all.sort_by_key(|one| one.since);
        all
    };
    let before = candidates().await;
    assert_eq!(before.iter().map(|one| &one.request).collect::<Vec<_>>(), [&first.id, &stranger.id]);
    assert_eq!(world.store.read(line::reserving).await.unwrap(), None);
    world.clock.advance(Duration::from_secs(3600));
    let (candidate, began) =
        (before[0].clone(), rules.begin(world.store.read(|tx| Ok::<_, Error>(tx.now())).await.unwrap()));
    write(&world, move |tx| line::reserve(tx, &candidate, &began)).await;
    let (claim, until) = world.store.read(line::reserving).await.unwrap().unwrap();
    assert_eq!((claim.place.request, until), (first.id.clone(), began.until));
    let after = candidates().await;
    let ours = after.iter().find(|one| one.scope == owner.scope()).unwrap();
    assert_eq!((&ours.request, ours.paused_until), (&second.id, began.paused_until), "the next of its organization");
    assert_eq!(after.iter().find(|one| one.scope == others.scope()).unwrap().paused_until, Time::ZERO);
    let scope = owner.scope().to_owned();
    write(&world, move |tx| line::end_pause(tx, &scope)).await;
    assert!(candidates().await.iter().all(|one| one.paused_until == Time::ZERO));
    world.clock.advance(rules.reserve_for);
    assert_eq!(world.store.read(line::reserving).await.unwrap(), None, "it has ended");
}

/// What organizations hold and what is being released is read from the instances that hold capacity.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn holdings_follow_instances(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let (owner, others) = (world.owner.clone(), other(&world));
    for (owner, state) in [(&owner, State::Running), (&owner, State::Destroying), (&others, State::Running)] {
        let cluster = cluster(&*world.ids, owner, &format!("egret-{}", RequestId::fresh(&*world.ids)), 1);
        let node = tarn_model::clusters::Instance {
            holds_capacity: true,
            gpus: vec![format!("gpu-{}", state.name())],
            state,
            ..instance(&*world.ids, &cluster.id, 0)
        };
        write(&world, move |tx| {
            clusters::insert(tx, &cluster)?;
            instances::insert(tx, &node)
        })
        .await;
    }
    enter(&world, &others, 5, 9).await;
    let held = world.store.read(line::holdings).await.unwrap();
    let of = |cpu_milli: u64, gigabytes: u64| Holding { cpu_milli, memory_bytes: gigabytes << 30, gpus: 0 };
    assert_eq!((held[owner.scope()], held[others.scope()]), (of(2000, 2), of(1000, 1)));
    let releasing = world.store.read(line::releasing).await.unwrap();
    assert_eq!((releasing.cpu_milli, releasing.memory_bytes), (1000, 1 << 30));
    assert_eq!(releasing.gpus.into_iter().collect::<Vec<_>>(), ["gpu-DESTROYING"]);
}
