//! Counts of what exists: exact after every change, found when they are wrong, and filled in for older databases.

use std::sync::Arc;

use rstest::rstest;
use tarn_model::capacity::Claim;
use tarn_model::clusters::{Cluster, Instance};
use tarn_model::ids::{ClusterId, RequestId, VolumeId};
use tarn_model::ledger::{Account, Transfer};
use tarn_model::lifecycle::State;
use tarn_model::requests::{Progress, Request, RequestKind};
use tarn_model::storage::{Volume, VolumeRemains, VolumeState};
use tarn_model::{Money, Time};
use tarn_store::counts::{self, Counts};
use tarn_store::testing::{DatabaseKind, ManualClock, SeededIds, empty};
use tarn_store::{Error, Store, clusters, instances, ledger, line, requests, storage};

use crate::support::{World, cluster, instance, raw, world};

/// A sequence of numbers that is the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn volume(world: &World, name: String) -> Volume {
    Volume {
        id: VolumeId::fresh(&*world.ids),
        name,
        owner: world.owner.clone(),
        size_gb: 10,
        first_size_gb: 10,
        deletion_protection: false,
        state: VolumeState::Pending,
        since: Time::ZERO,
        created: Time::ZERO,
        version: 0,
    }
}

fn claim_request(world: &World, cluster: &Cluster) -> Request {
    Request {
        id: RequestId::fresh(&*world.ids),
        kind: RequestKind::ClaimCluster(cluster.id.clone()),
        owner: world.owner.clone(),
        progress: Progress::Queued,
        attempts: 0,
        due: Time::ZERO,
        deadline: Time::from_micros(1_000),
        message: None,
        created: Time::ZERO,
        ended: None,
        epoch: 0,
    }
}

/// Moves to a state in any order, more often than the rules of the model allow.
fn any_state(chance: &mut Chance) -> State {
    match chance.below(8) {
        0 => State::Pending,
        1 => State::Provisioning,
        2 => State::Configuring,
        3 => State::Running,
        4 => State::Restarting,
        5 => State::Destroying,
        6 => State::Failed { reason: "why".into() },
        _ => State::Destroyed,
    }
}

fn any_volume_state(chance: &mut Chance) -> VolumeState {
    match chance.below(8) {
        0 => VolumeState::Creating,
        1 | 2 => VolumeState::Ready,
        3 => VolumeState::Resizing { to_gb: 10 + chance.below(50) },
        4 => VolumeState::Destroying,
        5 => VolumeState::Failed { reason: "why".into(), left: VolumeRemains::Nothing },
        6 => VolumeState::Failed { reason: "why".into(), left: VolumeRemains::Data },
        _ => VolumeState::Destroyed,
    }
}

async fn write(world: &World, work: impl Fn(&mut tarn_store::Tx<'_>) -> Result<(), Error> + Send + 'static) {
    world.store.write(work).await.unwrap();
}

/// One change of the world.
async fn change(world: &World, chance: &mut Chance, made: &mut (Vec<ClusterId>, Vec<VolumeId>, Vec<RequestId>)) {
    match chance.below(10) {
        0 => {
            let row = cluster(&*world.ids, &world.owner, &format!("c{}", made.0.len()), 0);
            let claim = claim_request(world, &row);
            let nodes: Vec<Instance> =
                (0..=chance.below(3) as u32).map(|n| instance(&*world.ids, &row.id, n)).collect();
            made.0.push(row.id.clone());
            made.2.push(claim.id.clone());
            let needed = Claim { shape: nodes[0].shape.clone(), nodes: row.num_nodes };
            write(world, move |tx| {
                clusters::insert(tx, &row)?;
                instances::insert_all(tx, &nodes)?;
                line::enter(tx, &claim, &needed)
            })
            .await;
        }
        1 => {
            let mut row = volume(world, format!("v{}", made.1.len()));
            row.size_gb += chance.below(100);
            made.1.push(row.id.clone());
            write(world, move |tx| storage::insert(tx, &row)).await;
        }
        2..=5 if !made.0.is_empty() => {
            let id = made.0[chance.below(made.0.len() as u64) as usize].clone();
            let (state, holding, nodes_first) = (any_state(chance), chance.below(8), chance.below(2) == 0);
            write(world, move |tx| {
                let Some(mut row) = clusters::get(tx, &id)? else { return Ok(()) };
                let mut nodes = instances::of_cluster(tx, &id)?;
                row.state = state.clone();
                for (at, node) in nodes.iter_mut().enumerate() {
                    node.holds_capacity = holding >> at & 1 == 1;
                }
                if !nodes_first {
                    clusters::save(tx, &row)?;
                }
                nodes.iter().try_for_each(|node| instances::save(tx, node))?;
                if nodes_first { clusters::save(tx, &row) } else { Ok(()) }
            })
            .await;
        }
        6 | 7 if !made.1.is_empty() => {
            let id = made.1[chance.below(made.1.len() as u64) as usize].clone();
            let (state, more) = (any_volume_state(chance), chance.below(2));
            write(world, move |tx| {
                let Some(mut row) = storage::get(tx, &id)? else { return Ok(()) };
                row.state = state.clone();
                row.size_gb += more;
                storage::save(tx, &row)
            })
            .await;
        }
        8 if !made.2.is_empty() => {
            let id = made.2[chance.below(made.2.len() as u64) as usize].clone();
            write(world, move |tx| line::set_examined(tx, &id)).await;
        }
        _ if !made.2.is_empty() => {
            let id = made.2[chance.below(made.2.len() as u64) as usize].clone();
            let waits = chance.below(2) == 0;
            write(world, move |tx| {
                let Some(mut request) = requests::get(tx, &id)?.filter(|one| one.ended.is_none()) else {
                    return Ok(());
                };
                request.progress = if waits { Progress::Queued } else { Progress::Forward { next: 1 } };
                requests::save(tx, &request)
            })
            .await;
        }
        _ => {}
    }
}

/// After any changes, in any order, the counts are those of the rows. A change that fails changes no count.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn counts_follow_every_change(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let (mut chance, mut made) = (Chance(3), (Vec::new(), Vec::new(), Vec::new()));
    let mut seen = Vec::new();
    for step in 0..300 {
        change(&world, &mut chance, &mut made).await;
        assert_eq!(world.store.read(counts::miscounts).await.unwrap(), [], "after change {step}");
        let counted: Counts = world.store.read(|tx| counts::get(tx, world.owner.scope())).await.unwrap();
        if !seen.contains(&counted) {
            seen.push(counted);
        }
    }
    assert!(seen.len() > 100, "only {} different counts were seen", seen.len());
    assert!(seen.iter().any(|counts| counts.waiting > 1));
    assert!(seen.iter().any(|counts| counts.hourly_rate > Money::ZERO));
    assert!(seen.iter().any(|counts| counts.promised_gb > counts.volume_gb));
    let stale = world.store.read(|tx| storage::get(tx, &made.1[0])).await.unwrap().unwrap();
    let stale = Volume { version: stale.version - 1, state: VolumeState::Ready, size_gb: 999, ..stale };
    assert!(matches!(world.store.write(move |tx| storage::save(tx, &stale)).await, Err(Error::Conflict)));
    assert_eq!(world.store.read(counts::miscounts).await.unwrap(), []);
}

/// Wrong counts are found, whichever they are, and can be corrected.
#[rstest]
#[case("update usage_counters set volumes = volumes + 1", "is off: volumes by 1")]
#[case("update usage_counters set clusters = 0, cpu_milli = cpu_milli + 5", "is off: clusters by -1, cpu_milli by 5")]
#[case("delete from usage_counters", "clusters by -1")]
#[case("update ledger_balances set amount_micros = amount_micros + 7", "is off: balance in micro-dollars by 7")]
#[case("delete from ledger_balances where account like 'balance:%'", "is off: balance in micro-dollars by -5")]
#[tokio::test(flavor = "multi_thread")]
async fn wrong_counts_are_found_and_corrected(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
    #[case] damage: &str,
    #[case] found: &str,
) {
    let Some(world) = world(database).await else { return };
    let row = cluster(&*world.ids, &world.owner, "one", 0);
    let node = instance(&*world.ids, &row.id, 0);
    let scope = world.owner.scope().to_owned();
    write(&world, move |tx| {
        clusters::insert(tx, &row)?;
        instances::insert(tx, &node)?;
        ledger::record(tx, "t-1", "me", &Transfer::grant(&scope, Money::from_micros(5), String::new()))
    })
    .await;
    let counted = || world.store.read(|tx| counts::get(tx, world.owner.scope()));
    let before = counted().await.unwrap();
    assert_eq!((before.clusters, before.instances, before.cpu_milli), (1, 1, 1000));
    raw(&world.fresh.database, damage).await;
    let miscounts = world.store.read(counts::miscounts).await.unwrap();
    assert!(miscounts.iter().any(|one| one.to_string().contains(found)), "{miscounts:?}");
    assert_eq!(world.store.write(counts::correct).await.unwrap(), miscounts);
    assert_eq!(world.store.read(counts::miscounts).await.unwrap(), []);
    assert_eq!(counted().await.unwrap(), before);
    let account = Account::balance_of(world.owner.scope());
    assert_eq!(world.store.read(|tx| ledger::balance(tx, &account)).await.unwrap(), Money::from_micros(5));
}

/// Databases from before the counts get them.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn older_database_gets_counts(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(fresh) = empty(database).await else { return };
    let before = [
        "create table migrations (version bigint primary key);",
        include_str!("../../../../migrations/0001_spine.sql"),
        include_str!("../../../../migrations/0002_machines.sql"),
        "insert into migrations (version) values (1), (2);",
        "insert into clusters (id, scope, name, user_id, instance_type, num_nodes, hourly_rate_micros, deletion_protection, \
         state, since_us, created_us, version) values \
         ('c-000000000001', 'o-1', 'a', 'u-1', '1xCPU', 2, 30, 0, 'RUNNING', 1, 1, 0), \
         ('c-000000000002', 'o-1', 'b', 'u-1', '1xCPU', 1, 15, 0, 'PENDING', 1, 1, 0), \
         ('c-000000000003', 'o-1', 'c', 'u-1', '1xCPU', 1, 15, 0, 'FAILED', 1, 1, 0), \
         ('c-000000000004', 'o-1', 'd', 'u-1', '1xCPU', 1, 15, 0, 'DESTROYED', 1, 1, 0);",
        "insert into instances (id, cluster_id, node, state, cpu_milli, memory_bytes, gpu_count, gpus, holds_capacity, boot) \
         values ('i-000000000001', 'c-000000000001', 0, 'RUNNING', 1000, 1, 1, '', 1, 1), \
         ('i-000000000002', 'c-000000000001', 1, 'RUNNING', 1000, 1, 1, '', 1, 1), \
         ('i-000000000003', 'c-000000000002', 0, 'PENDING', 500, 1, 2, '', 0, 1), \
         ('i-000000000004', 'c-000000000003', 0, 'FAILED', 1000, 1, 1, '', 0, 1), \
         ('i-000000000005', 'c-000000000004', 0, 'DESTROYED', 1000, 1, 1, '', 0, 1);",
        "insert into requests (id, type, status, user_id, scope, cluster_id, waiting, step, attempts, due_us, deadline_us, \
         lease_until_us, epoch, created_us) values \
         ('r-000000000001', 'CLUSTER_CLAIM', 'PENDING', 'u-1', 'o-1', 'c-000000000002', 1, 0, 0, 1, 1, 0, 0, 1);",
        "insert into volumes (id, scope, name, user_id, size_gb, first_size_gb, to_gb, remains, deletion_protection, state, \
         since_us, created_us, version) values \
         ('s-000000000001', 'u-2', 'a', 'u-2', 5, 5, null, 1, 0, 'READY', 1, 1, 0), \
         ('s-000000000002', 'u-2', 'b', 'u-2', 5, 5, 8, 1, 0, 'RESIZING', 1, 1, 0), \
         ('s-000000000003', 'u-2', 'c', 'u-2', 5, 5, null, 0, 0, 'DESTROYED', 1, 1, 0);",
        "insert into ledger_entries (transaction_id, line, account, amount_micros) values \
         ('t-1', 0, 'engine:grants', -7), ('t-1', 1, 'balance:o-1', 7), \
         ('t-2', 0, 'engine:grants', -2), ('t-2', 1, 'balance:o-1', 2);",
    ];
    raw(&fresh.database, &before.concat()).await;
    let (clock, ids) = (Arc::new(ManualClock::default()), Arc::new(SeededIds::new(7)));
    let store = Store::open(&fresh.database, clock, ids).await.unwrap();
    assert_eq!(store.read(counts::miscounts).await.unwrap(), []);
    let (one, other) =
        store.read(|tx| Ok::<_, Error>((counts::get(tx, "o-1")?, counts::get(tx, "u-2")?))).await.unwrap();
    let rate = Money::from_micros(30);
    let expected = Counts {
        clusters: 3,
        hourly_rate: rate,
        instances: 3,
        cpu_milli: 2500,
        gpus: 4,
        waiting: 1,
        ..Counts::default()
    };
    assert_eq!(one, expected);
    assert_eq!(other, Counts { volumes: 2, volume_gb: 10, promised_gb: 13, ..Counts::default() });
    let balance = store.read(|tx| ledger::balance(tx, &Account::balance_of("o-1"))).await.unwrap();
    assert_eq!(balance, Money::from_micros(9));
}
