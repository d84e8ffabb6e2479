//! The order of the line: no tenant keeps another from free capacity, claims reserve in turns, and who holds least
//! comes first.

use std::time::Duration;

use rstest::rstest;
use tarn_base::Edit;
use tarn_control::operations::clusters;
use tarn_control::operations::limits::{self, LimitsEdit};
use tarn_control::operations::requests;
use tarn_control::runner::Runner;
use tarn_control::testing::{World, world};
use tarn_control::{Caller, Settings};
use tarn_model::ids::{ClusterId, RequestId};
use tarn_model::limits::Limits;
use tarn_model::line::Rules;
use tarn_store::testing::DatabaseKind;

const SECOND: Duration = Duration::from_secs(1);

async fn state(world: &World, caller: &Caller, cluster: &ClusterId) -> &'static str {
    clusters::info(&world.control, caller, cluster.as_str()).await.unwrap().cluster.state.name()
}

async fn explained(world: &World, caller: &Caller, request: &RequestId) -> String {
    requests::info(&world.control, caller, request.as_str()).await.unwrap().explanation.unwrap()
}

async fn destroy(world: &World, caller: &Caller, cluster: &ClusterId) {
    clusters::destroy(&world.control, caller, cluster.as_str()).await.unwrap();
    world.settle().await;
}

/// A later claim of this caller.
async fn create(world: &World, caller: &Caller, kind: &str) -> (ClusterId, RequestId) {
    world.wait(SECOND).await;
    world.create_as(caller, kind, 1).await
}

/// How many nodes of a type a new claim would get at once.
async fn room(world: &World, name: &str) -> u64 {
    let types = clusters::types(&world.control).await.unwrap();
    types.into_iter().find(|(kind, _)| kind.name == name).unwrap().1
}

/// A claim that cannot start keeps another tenant from free capacity neither when that tenant's claim arrives nor when
/// capacity is freed, however many such claims there are.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn waiting_claims_hide_no_other_tenant(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let world = world.with_settings(Settings { limits: Limits::default(), ..Settings::default() });
    let (ours, eve) = (world.caller.clone(), world.other_tenant().await);
    for kind in ["4xCPU", "2xCPU"] {
        world.running(kind, 1).await;
    }
    let last = world.running("1xCPU", 1).await;
    for kind in ["2xCPU", "4xCPU", "8xCPU"].into_iter().cycle().take(70) {
        create(&world, &ours, kind).await;
    }
    world.settle().await;
    assert_eq!(room(&world, "1xCPU").await, 1);
    let (first, _) = create(&world, &eve, "1xCPU").await;
    world.settle().await;
    assert_eq!(state(&world, &eve, &first).await, "RUNNING", "one CPU is free");
    let (second, request) = create(&world, &eve, "1xCPU").await;
    world.settle().await;
    let text = explained(&world, &eve, &request).await;
    assert!(text.starts_with("Waits for 1 CPU, 0 are free, 1st in line; until "), "{text}");
    destroy(&world, &ours, &last).await;
    assert_eq!(state(&world, &eve, &second).await, "RUNNING", "it was not hidden by 70 claims");
    world.assert_agreement("after the other tenant has started").await;
}

/// A claim that has waited long enough reserves what it needs, for a limited time; both are times at which nothing else
/// happens, and every engine decides the same.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn long_waiting_claim_reserves_for_a_while(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let (ours, eve, rules) = (world.caller.clone(), world.other_tenant().await, Rules::default());
    for kind in ["4xCPU", "2xCPU", "1xCPU"] {
        world.running(kind, 1).await;
    }
    let (large, request) = world.create("2xCPU", 1).await;
    let since = world.request(&request).await.request.created;
    let runner = Runner::new(world.control.clone());
    let next = runner.tick().await.unwrap();
    assert_eq!(next, Some(since.after(rules.reserve_after)), "the runner is woken when it may reserve");
    assert_eq!(room(&world, "1xCPU").await, 1);
    world.wait(rules.reserve_after).await;
    let until = runner.tick().await.unwrap().unwrap();
    let ends = since.after(rules.reserve_after).after(rules.reserve_for);
    assert!((ends..ends.after(SECOND)).contains(&until), "the runner is woken when the reservation ends: {until}");
    let text = explained(&world, &ours, &request).await;
    assert!(text.contains(&format!("It reserves capacity until {until}")), "{text}");
    assert_eq!((room(&world, "1xCPU").await, room(&world, "1xH100").await), (0, 0), "a GPU comes with a CPU");

    let (small, behind) = create(&world, &eve, "1xCPU").await;
    Runner::new(world.beside()).tick().await.unwrap();
    world.settle().await;
    assert_eq!(state(&world, &eve, &small).await, "PENDING", "nobody overtakes the claim that reserves");
    let text = explained(&world, &eve, &behind).await;
    assert!(text.contains("Waits for its turn, 2nd in line"), "{text}");
    assert!(text.contains(&format!("Another claim reserves capacity until {until}")), "{text}");

    world.wait(rules.reserve_for).await;
    runner.tick().await.unwrap();
    assert_eq!(state(&world, &eve, &small).await, "RUNNING", "the reservation has ended");
    assert_eq!(state(&world, &ours, &large).await, "PENDING");
    let text = explained(&world, &ours, &request).await;
    assert!(text.contains("Claims that fit may overtake it"), "{text}");
    world.assert_agreement("after the reservation").await;
}

/// Capacity that is freed during a reservation goes to the claim that reserves, and the next turn is that of another
/// organization.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn freed_capacity_gathers_for_a_reservation(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let (ours, eve, rules) = (world.caller.clone(), world.other_tenant().await, Rules::default());
    let mut running = Vec::new();
    for _ in 0..8 {
        running.push(world.running("1xCPU", 1).await);
    }
    let (large, _) = create(&world, &ours, "2xCPU").await;
    let (again, _) = create(&world, &ours, "4xCPU").await;
    let (other, other_request) = create(&world, &eve, "4xCPU").await;
    world.settle().await;
    world.wait(rules.reserve_after).await;
    let (small, _) = create(&world, &eve, "1xCPU").await;
    // It is the turn of the tenant that holds nothing only after the oldest claim.
    world.settle().await;
    for cluster in running.drain(..2) {
        assert_eq!(state(&world, &ours, &large).await, "PENDING");
        destroy(&world, &ours, &cluster).await;
    }
    assert_eq!(state(&world, &ours, &large).await, "RUNNING");
    assert_eq!(state(&world, &eve, &small).await, "PENDING", "what was freed was reserved");
    let text = explained(&world, &eve, &other_request).await;
    assert!(text.contains("It reserves capacity until"), "organizations take turns: {text}");
    for cluster in running.drain(..4) {
        destroy(&world, &ours, &cluster).await;
    }
    assert_eq!((state(&world, &eve, &other).await, state(&world, &ours, &again).await), ("RUNNING", "PENDING"));
    world.assert_agreement("after both reservations").await;
}

/// Of claims that wait, that of the organization that holds least comes first.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn organization_that_holds_least_comes_first(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let (ours, eve) = (world.caller.clone(), world.other_tenant().await);
    let zoe = world.member("zoe@example.org", Some("thirds")).await;
    let mut running = Vec::new();
    for _ in 0..6 {
        running.push(world.running("1xCPU", 1).await);
    }
    create(&world, &eve, "2xCPU").await;
    world.settle().await;
    let (mine, mine_request) = create(&world, &ours, "1xCPU").await;
    let (hers, _) = create(&world, &eve, "1xCPU").await;
    let (new, new_request) = create(&world, &zoe, "1xCPU").await;
    world.settle().await;
    let texts = [explained(&world, &zoe, &new_request).await, explained(&world, &ours, &mine_request).await];
    assert!(texts[0].contains("1st in line") && texts[1].contains("3rd in line"), "{texts:?}");
    let states =
        async || [state(&world, &zoe, &new).await, state(&world, &eve, &hers).await, state(&world, &ours, &mine).await];
    destroy(&world, &ours, &running.remove(0)).await;
    assert_eq!(states().await, ["RUNNING", "PENDING", "PENDING"]);
    destroy(&world, &ours, &running.remove(0)).await;
    assert_eq!(states().await, ["RUNNING", "RUNNING", "PENDING"]);
    destroy(&world, &ours, &running.remove(0)).await;
    assert_eq!(states().await, ["RUNNING", "RUNNING", "RUNNING"]);
}

/// Only so many claims of an organization may wait; those that were not examined yet and those of others do not count.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn waiting_claims_are_limited(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    assert_eq!(Settings::default().limits.waiting, Some(16));
    let (ours, eve) = (world.caller.clone(), world.other_tenant().await);
    let org = ours.user.org.clone().unwrap();
    let set = async |waiting: Edit<u64>| {
        let edit = LimitsEdit { waiting, ..Default::default() };
        limits::edit(&world.control, &ours, org.as_str(), edit).await.unwrap()
    };
    assert_eq!(set(Edit::Set(2)).await.limits.waiting, Some(2));
    for _ in 0..4 {
        create(&world, &ours, "2xCPU").await;
    }
    world.settle().await;
    let new = || clusters::NewCluster { instance_type: "8xCPU".into(), ..Default::default() };
    let (first, _) = create(&world, &ours, "4xCPU").await;
    create(&world, &ours, "1xCPU").await;
    world.settle().await;
    let refused = clusters::create(&world.control, &ours, new()).await.unwrap_err();
    assert_eq!(refused.code, "limit_reached");
    assert!(refused.message.starts_with("2 clusters of the organization wait for capacity"), "{refused}");
    assert_eq!(limits::info(&world.control, &ours, org.as_str()).await.unwrap().used.waiting, 2);
    create(&world, &eve, "8xCPU").await;
    destroy(&world, &ours, &first).await;
    create(&world, &ours, "8xCPU").await;
    world.settle().await;
    // An equal claim waits already, so that this one counts at once.
    assert!(clusters::create(&world.control, &ours, new()).await.is_err());
    set(Edit::Set(0)).await;
    for _ in 0..20 {
        create(&world, &ours, "8xCPU").await;
    }
    set(Edit::Clear).await;
    assert_eq!(clusters::create(&world.control, &ours, new()).await.unwrap_err().code, "limit_reached");
}

/// A claim that the host can no longer hold leaves the line although others are before it.
#[tokio::test(flavor = "multi_thread")]
async fn hopeless_claim_leaves_from_the_middle() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let ours = world.caller.clone();
    world.running("4xH100", 1).await;
    world.running("2xH100", 1).await;
    let (waiting, _) = create(&world, &ours, "4xH100").await;
    let (hopeless, _) = create(&world, &ours, "8xH100").await;
    world.settle().await;
    let mut smaller = tarn_control::testing::host_inventory();
    smaller.gpus.truncate(6);
    let world = world.moved_to(smaller).await;
    world.settle().await;
    assert_eq!((state(&world, &ours, &waiting).await, state(&world, &ours, &hopeless).await), ("PENDING", "FAILED"));
}
