//! The step matrix: every step of every kind of request, forward and undone, under every fault. In the end the request
//! has ended, and the database and the host agree.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rstest::rstest;
use tarn_control::operations::{clusters, storage};
use tarn_control::requests::{Undo, definition};
use tarn_control::runner::faults::{Fault, FaultPoint, Faults};
use tarn_control::testing::{World, world};
use tarn_model::ids::{ClusterId, RequestId, VolumeId};
use tarn_model::requests::{RequestKind, RequestStatus, RequestType};
use tarn_store::testing::DatabaseKind;

const ONCE: [Fault; 5] = [Fault::ErrorBefore, Fault::ErrorAfter, Fault::Crash, Fault::Twice, Fault::TimeoutAfter];

/// Injects one fault at one point, once; optionally another step fails permanently, so that everything is undone.
struct Plan {
    at: FaultPoint,
    fault: Fault,
    spent: AtomicBool,
    gives_up_at: Option<&'static str>,
}

impl Faults for Plan {
    fn at(&self, at: FaultPoint) -> Fault {
        if at == self.at && !self.spent.swap(true, Ordering::SeqCst) {
            return self.fault;
        }
        match self.gives_up_at {
            Some(step) if at.step == step && !at.undo && at.kind == self.at.kind => Fault::Permanent,
            _ => Fault::None,
        }
    }
}

/// Every step survives every fault.
#[rstest]
#[case(RequestType::ClusterClaim)]
#[case(RequestType::ClusterRelease)]
#[case(RequestType::ClusterEdit)]
#[case(RequestType::ClusterRestart)]
#[case(RequestType::StorageCreate)]
#[case(RequestType::StorageDestroy)]
#[case(RequestType::StorageAttach)]
#[case(RequestType::StorageDetach)]
#[case(RequestType::StorageEdit)]
#[tokio::test(flavor = "multi_thread")]
async fn every_step_survives_every_fault(
    #[case] kind: RequestType,
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let any = any_kind(kind);
    for step in definition(&any).steps {
        let at = FaultPoint { kind, step: step.name, undo: false };
        for (fault, live) in ONCE.iter().flat_map(|fault| ways(kind).iter().map(|live| (*fault, *live))) {
            let context = format!("{kind:?} {} {fault:?} live {live}", step.name);
            let case = Case { live, at, fault, gives_up_at: None };
            let Some((world, id)) = run(database, case, &context).await else { return };
            assert_eq!(world.request(&id).await.request.status(), RequestStatus::Completed, "{context}");
        }
    }
    if definition(&any).steps.is_empty() {
        let Some(world) = world(database).await else { return };
        let id = start(&world, kind, false).await;
        assert_eq!(world.request(&id).await.request.status(), RequestStatus::Completed, "nothing is left to do");
    }
}

/// Every undo survives every fault.
#[rstest]
#[case(RequestType::ClusterClaim)]
#[case(RequestType::ClusterRelease)]
#[case(RequestType::ClusterRestart)]
#[case(RequestType::StorageCreate)]
#[case(RequestType::StorageDestroy)]
#[case(RequestType::StorageAttach)]
#[case(RequestType::StorageDetach)]
#[case(RequestType::StorageEdit)]
#[tokio::test(flavor = "multi_thread")]
async fn every_undo_survives_every_fault(#[case] kind: RequestType) {
    let any = any_kind(kind);
    let steps = definition(&any).steps;
    for (last, live) in steps.iter().flat_map(|last| ways(kind).iter().map(move |live| (last, *live))) {
        let at = FaultPoint { kind, step: last.name, undo: false };
        let context = format!("{kind:?} gives up at {} live {live}", last.name);
        let case = Case { live, at, fault: Fault::Permanent, gives_up_at: None };
        let Some((world, id)) = run(DatabaseKind::Sqlite, case, &context).await else { return };
        let ended = world.request(&id).await.request;
        assert_eq!(ended.status(), RequestStatus::Failed, "{context}");
        assert!(ended.message.unwrap().contains("made to fail for good"), "{context}");
        let reached = steps.iter().position(|step| step.name == last.name).unwrap();
        let undone = steps[..=reached].iter().filter(|step| matches!(step.undo, Undo::With(_)));
        for (step, fault) in undone.flat_map(|step| ONCE.iter().map(move |fault| (step, *fault))) {
            let at = FaultPoint { kind, step: step.name, undo: true };
            let context = format!("{context}, undo of {} {fault:?}", step.name);
            let case = Case { live, at, fault, gives_up_at: Some(last.name) };
            let Some((world, id)) = run(DatabaseKind::Sqlite, case, &context).await else { return };
            assert_eq!(world.request(&id).await.request.status(), RequestStatus::Failed, "{context}");
        }
    }
}

/// An undo that never succeeds ends, and the message says so.
#[tokio::test(flavor = "multi_thread")]
async fn endless_undo_ends_and_reports() {
    struct Stubborn;
    impl Faults for Stubborn {
        fn at(&self, at: FaultPoint) -> Fault {
            match (at.step, at.undo) {
                ("confirm", false) => Fault::Permanent,
                (_, true) => Fault::ErrorBefore,
                _ => Fault::None,
            }
        }
    }
    let Some(world) = world(DatabaseKind::Sqlite).await else {
        return;
    };
    let (cluster, id) = world.create("1xH100", 1).await;
    world.settle_with_faults(Arc::new(Stubborn)).await;
    let ended = world.request(&id).await.request;
    assert_eq!(ended.status(), RequestStatus::Failed);
    assert!(ended.message.as_deref().unwrap().contains("something may be left behind"), "{ended:?}");
    let held = world.store.read(tarn_store::instances::held).await.unwrap();
    assert_eq!(held.gpus.len(), 1, "what may still exist keeps its capacity");
    clusters::destroy(&world.control, &world.caller, cluster.as_str()).await.unwrap();
    world.settle().await;
    world.assert_agreement("after the second try").await;
    assert!(world.store.read(tarn_store::instances::held).await.unwrap().gpus.is_empty());
}

/// One cell of the matrix.
#[derive(Clone, Copy)]
struct Case {
    live: bool,
    at: FaultPoint,
    fault: Fault,
    gives_up_at: Option<&'static str>,
}

/// A request of this type about objects that need not exist.
fn any_kind(kind: RequestType) -> RequestKind {
    let (cluster, volume): (ClusterId, VolumeId) =
        ("c-000000000001".parse().unwrap(), "s-000000000001".parse().unwrap());
    let of_cluster = RequestKind::new(kind, Some(cluster.clone()), None, false);
    let of_volume = RequestKind::new(kind, None, Some(volume.clone()), false);
    of_cluster.or(of_volume).or(RequestKind::new(kind, Some(cluster), Some(volume), false)).unwrap()
}

/// Attaching and detaching are done in two ways, everything else in one.
fn ways(kind: RequestType) -> &'static [bool] {
    match kind {
        RequestType::StorageAttach | RequestType::StorageDetach => &[false, true],
        _ => &[false],
    }
}

/// Prepares what the request needs, starts it, runs it with the fault, and compares the database with the host.
async fn run(database: DatabaseKind, case: Case, context: &str) -> Option<(World, RequestId)> {
    let Case { live, at, fault, gives_up_at } = case;
    let world = world(database).await?;
    let id = start(&world, at.kind, live).await;
    let plan = Arc::new(Plan { at, fault, spent: AtomicBool::new(false), gives_up_at });
    world.settle_with_faults(plan.clone()).await;
    assert!(plan.spent.load(Ordering::SeqCst), "{context}: the fault never happened");
    world.assert_agreement(context).await;
    Some((world, id))
}

async fn start(world: &World, kind: RequestType, live: bool) -> RequestId {
    let (control, caller) = (&world.control, &world.caller);
    match kind {
        // With an image of its own, so that it has every step.
        RequestType::ClusterClaim => world.create_of("2xH100", 2, Some("debian:12")).await.1,
        RequestType::ClusterRelease => {
            let cluster = world.running("2xH100", 2).await;
            clusters::destroy(control, caller, cluster.as_str()).await.unwrap().request
        }
        RequestType::ClusterEdit => {
            let cluster = world.running("1xCPU", 1).await;
            let edit = clusters::ClusterEdit { name: Some("heron".into()), deletion_protection: None };
            clusters::edit(control, caller, cluster.as_str(), edit).await.unwrap().request
        }
        RequestType::ClusterRestart => {
            let (cluster, volume) = (world.running("1xH100", 2).await, world.ready_volume().await);
            storage::attach(control, caller, volume.as_str(), cluster.as_str(), false).await.unwrap();
            world.settle().await;
            clusters::restart(control, caller, cluster.as_str()).await.unwrap().request
        }
        RequestType::StorageCreate => {
            let new = storage::NewVolume { size_gb: 10, ..Default::default() };
            storage::create(control, caller, new).await.unwrap().request
        }
        RequestType::StorageDestroy => {
            let volume = world.ready_volume().await;
            storage::destroy(control, caller, volume.as_str()).await.unwrap().request
        }
        RequestType::StorageAttach | RequestType::StorageDetach => {
            let (volume, cluster) = (world.ready_volume().await, world.running("1xCPU", 2).await);
            let attached = storage::attach(control, caller, volume.as_str(), cluster.as_str(), live).await.unwrap();
            if kind == RequestType::StorageAttach {
                return attached.request;
            }
            world.settle().await;
            if !live {
                let node = world.info(&cluster).await.instances[0].id.clone();
                world.driver.fake.hold(&volume, &node, "python3").await.unwrap();
            }
            storage::detach(control, caller, volume.as_str(), cluster.as_str(), live).await.unwrap().request
        }
        RequestType::StorageEdit => {
            let volume = world.ready_volume().await;
            let edit = storage::VolumeEdit { size_gb: Some(25), ..Default::default() };
            storage::edit(control, caller, volume.as_str(), edit).await.unwrap().request
        }
    }
}

/// A live attach that cannot be undone stays attached.
#[tokio::test(flavor = "multi_thread")]
async fn live_attach_without_undo_stays_attached() {
    struct Stubborn;
    impl Faults for Stubborn {
        fn at(&self, at: FaultPoint) -> Fault {
            match (at.step, at.undo) {
                ("confirm", false) => Fault::Permanent,
                (_, true) => Fault::ErrorBefore,
                _ => Fault::None,
            }
        }
    }
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let (volume, cluster) = (world.ready_volume().await, world.running("1xCPU", 1).await);
    let (control, caller) = (&world.control, &world.caller);
    storage::attach(control, caller, volume.as_str(), cluster.as_str(), true).await.unwrap();
    world.settle_with_faults(Arc::new(Stubborn)).await;
    let refused = storage::destroy(control, caller, volume.as_str()).await.unwrap_err();
    assert_eq!(refused.code, "storage_attached", "it may still be mounted");
    storage::detach(control, caller, volume.as_str(), cluster.as_str(), true).await.unwrap();
    world.settle().await;
    world.assert_agreement("after the detach").await;
}
