//! Unhealthy or drained GPUs: they are not assigned, explanations say why, and they come back.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::time::{Duration, UNIX_EPOCH};

use rstest::rstest;
use tarn_control::operations::clusters::{self, NewCluster};
use tarn_control::operations::host::{self, DrainReason};
use tarn_control::testing::{FAULTS, World, world};
use tarn_control::{Kind, Settings, reconcilers};
use tarn_model::Clock;
use tarn_model::ids::ClusterId;
use tarn_store::instances;
use tarn_store::testing::DatabaseKind;

/// Runs a script of GPU faults now, and observes.
async fn script(world: &World, text: &str) {
    let path = world.fresh.dir.path().join(FAULTS);
    fs::write(&path, text).unwrap();
    let now = Duration::from_micros(world.clock.now().as_micros().unsigned_abs());
    File::options().write(true).open(&path).unwrap().set_modified(UNIX_EPOCH + now).unwrap();
    observe_gpus(world).await;
}

async fn observe_gpus(world: &World) {
    reconcilers::gpus::tick(&world.control).await.unwrap();
    world.settle().await;
}

fn fault(gpu: u32, line: &str) -> String {
    format!("[[gpu]]\nid = \"gpu-{gpu}\"\n{line}\n")
}

async fn health(world: &World, gpu: usize) -> &'static str {
    host::list_gpus(&world.control, &world.caller).await.unwrap()[gpu].known.health.name()
}

async fn state(world: &World, cluster: &ClusterId) -> &'static str {
    world.info(cluster).await.cluster.state.name()
}

async fn explanation(world: &World, cluster: &ClusterId) -> String {
    world.info(cluster).await.explanation.unwrap()
}

/// The GPUs that the nodes of these clusters hold, once for each holder.
async fn owned(world: &World, clusters: impl IntoIterator<Item = &ClusterId>) -> Vec<String> {
    let mut owned = Vec::new();
    for cluster in clusters {
        owned.extend(world.info(cluster).await.instances.into_iter().flat_map(|node| node.gpus));
    }
    owned
}

async fn available(world: &World, name: &str) -> u64 {
    let types = clusters::types(&world.control).await.unwrap();
    types.into_iter().find(|(kind, _)| kind.name == name).unwrap().1
}

/// An unhealthy GPU is not offered until it has recovered.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn unhealthy_gpu_is_not_offered(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    script(&world, &fault(3, "throttled = true")).await;
    assert_eq!((available(&world, "8xH100").await, available(&world, "1xH100").await), (0, 7));
    let (cluster, _) = world.create("8xH100", 1).await;
    world.settle().await;
    assert_eq!(state(&world, &cluster).await, "PENDING");
    let explained = explanation(&world, &cluster).await;
    let expected = "8 H100 GPUs, 7 are free (1 of 8 H100 GPUs is not offered: gpu-3: it slows itself down (too hot))";
    assert!(explained.contains(expected), "{explained}");
    assert_eq!(world.events("gpu.bad").await.len(), 1);

    script(&world, "").await;
    assert_eq!(state(&world, &cluster).await, "PENDING", "it is observed for a while");
    let explained = explanation(&world, &cluster).await;
    assert!(explained.contains("watched for a while"), "{explained}");
    world.wait(Settings::default().gpu_recovery).await;
    observe_gpus(&world).await;
    assert_eq!(state(&world, &cluster).await, "RUNNING");
    let explained = (world.events("gpu.bad").await.len(), world.events("gpu.good").await.len());
    assert_eq!(explained, (1, 1), "each change is recorded once");
    world.assert_agreement("after a GPU has come right again").await;
}

/// A GPU with a fatal fault waits for the operator.
#[tokio::test(flavor = "multi_thread")]
async fn fatal_fault_waits_for_operator() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let refused = host::clear_gpu(&world.control, &world.caller, "gpu-0").await.unwrap_err();
    assert_eq!((refused.kind, refused.code), (Kind::Conflict, "gpu_not_fatal"));
    script(&world, &fault(0, "xids = [79]")).await;
    script(&world, "").await;
    world.wait(Duration::from_secs(24 * 3600)).await;
    observe_gpus(&world).await;
    assert_eq!(available(&world, "1xH100").await, 7, "time does not heal it");
    let (cluster, _) = world.create("8xH100", 1).await;
    world.settle().await;
    let explained = explanation(&world, &cluster).await;
    assert!(
        explained.contains("gpu-0: Xid 79 (fallen off its bus) at") && explained.contains("an operator"),
        "{explained}"
    );
    script(&world, &fault(0, "xids = [79]")).await;
    let said = host::clear_gpu(&world.control, &world.caller, "gpu-0").await.unwrap();
    assert!(said.contains("gpu-0 is not offered: watched for a while"), "{said}");
    world.settle().await;
    assert_eq!(state(&world, &cluster).await, "PENDING", "it has not been looked at");
    script(&world, &fault(0, "lost = true")).await;
    assert_eq!(health(&world, 0).await, "FATAL", "it was cleared too soon");
    script(&world, "").await;
    host::clear_gpu(&world.control, &world.caller, "gpu-0").await.unwrap();
    observe_gpus(&world).await;
    assert_eq!((health(&world, 0).await, state(&world, &cluster).await), ("RECOVERING", "PENDING"));
    world.wait(Settings::default().gpu_recovery).await;
    observe_gpus(&world).await;
    assert_eq!(state(&world, &cluster).await, "RUNNING", "the old error is history");
    world.wait(Duration::from_secs(1)).await;
    script(&world, &fault(0, "xids = [79]")).await;
    assert_eq!(health(&world, 0).await, "FATAL", "a new one is not");
    let unknown = host::clear_gpu(&world.control, &world.caller, "gpu-99").await.unwrap_err();
    assert_eq!(unknown.kind, Kind::NotFound);
}

/// The instance that holds an unhealthy GPU keeps it, and its owner is informed.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn owner_of_unhealthy_gpu_is_informed(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    observe_gpus(&world).await;
    let cluster = world.running("2xH100", 1).await;
    let before = world.info(&cluster).await;
    assert_eq!(before.explanation, None);
    assert_eq!(before.instances[0].gpus, ["gpu-0", "gpu-1"]);
    script(&world, &fault(1, "uncorrected_errors = 2\nlost = true")).await;
    let after = world.info(&cluster).await;
    assert_eq!((after.cluster.state.name(), &after.instances), ("RUNNING", &before.instances));
    let explained = after.explanation.unwrap();
    assert!(explained.contains("GPU gpu-1 of") && explained.contains("it has fallen off its bus"), "{explained}");
    assert_eq!(after.gpus["gpu-1"].health.name(), "FATAL");
    let events = world.events("gpu.fatal").await;
    assert_eq!((events.len(), &events[0].detail["cluster"]), (1, &cluster.as_str().into()));

    clusters::destroy(&world.control, &world.caller, cluster.as_str()).await.unwrap();
    world.settle().await;
    let next = world.running("4xH100", 1).await;
    assert_eq!(world.info(&next).await.instances[0].gpus, ["gpu-0", "gpu-2", "gpu-3", "gpu-4"]);
    world.assert_agreement("after a GPU was lost").await;
}

/// A drained GPU is not assigned.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn gpu_is_drained(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let (control, caller) = (&world.control, &world.caller);
    let reason = || Some(DrainReason(Some("a new fan".into())));
    let said = host::drain_gpu(control, caller, "gpu-0", reason()).await.unwrap();
    assert!(said.contains("gpu-0 is not offered: drained by an operator") && said.contains("a new fan"), "{said}");
    observe_gpus(&world).await;
    let small = world.running("1xH100", 1).await;
    assert_eq!(world.info(&small).await.instances[0].gpus, ["gpu-1"]);
    assert_eq!(world.info(&small).await.explanation, None);
    let said = host::drain_gpu(control, caller, "gpu-1", reason()).await.unwrap();
    assert!(said.contains("keeps it"), "{said}");
    assert_eq!(world.info(&small).await.explanation, None, "it is no concern of its owner's");
    let again = host::drain_gpu(control, caller, "gpu-1", Some(DrainReason(None))).await.unwrap();
    assert!(again.contains("a new fan"), "the reason stays until there is another: {again}");
    let owned = host::drain_gpu(control, caller, "gpu-1", None).await.unwrap();
    assert!(owned.contains("gpu-1 will be offered again when instance i-") && !owned.contains("keeps it"), "{owned}");
    host::drain_gpu(control, caller, "gpu-1", reason()).await.unwrap();
    clusters::destroy(control, caller, small.as_str()).await.unwrap();
    let (large, _) = world.create("8xH100", 1).await;
    world.settle().await;
    let explained = explanation(&world, &large).await;
    assert!(explained.contains("2 of 8 H100 GPUs are not offered") && explained.contains("a new fan"), "{explained}");
    for gpu in ["gpu-0", "gpu-1"] {
        host::drain_gpu(control, caller, gpu, None).await.unwrap();
    }
    world.settle().await;
    assert_eq!(state(&world, &large).await, "RUNNING");
    assert_eq!((world.events("gpu.drain").await.len(), world.events("gpu.undrain").await.len()), (4, 3));
    let long = Some(DrainReason(Some("x".repeat(201))));
    let refused = host::drain_gpu(control, caller, "gpu-0", long).await.unwrap_err();
    assert_eq!(refused.code, "invalid_reason");
}

/// A drained host accepts no new clusters.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn host_is_drained(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let (control, caller) = (&world.control, &world.caller);
    let runs = world.running("1xCPU", 1).await;
    host::drain(control, caller, Some(DrainReason(Some("a new kernel".into())))).await.unwrap();
    host::drain(control, caller, Some(DrainReason(None))).await.unwrap();
    let (waits, _) = world.create("1xCPU", 1).await;
    world.settle().await;
    assert_eq!((state(&world, &runs).await, state(&world, &waits).await), ("RUNNING", "PENDING"));
    let explained = explanation(&world, &waits).await;
    assert!(
        explained.contains("Waits for the host to take on work again") && explained.contains("a new kernel"),
        "{explained}"
    );
    assert_eq!(available(&world, "1xCPU").await, 0);
    clusters::restart(control, caller, runs.as_str()).await.unwrap();
    world.settle().await;
    assert_eq!(state(&world, &runs).await, "RUNNING", "what runs may also be restarted");
    let info = host::info(control, caller).await.unwrap();
    assert_eq!((info.drain.unwrap().reason.as_deref(), info.held.cpu_milli), (Some("a new kernel"), 1000));
    host::drain(control, caller, None).await.unwrap();
    world.settle().await;
    assert_eq!(state(&world, &waits).await, "RUNNING");
    let stranger = world.other_tenant().await;
    assert_eq!(host::drain(control, &stranger, None).await.unwrap_err().kind, Kind::Forbidden);
}

/// The slices of a GPU are instance types.
#[tokio::test(flavor = "multi_thread")]
async fn gpu_slices_are_instance_types() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    script(&world, &fault(0, "mig = [\"1g.10gb\", \"1g.10gb\", \"2g.20gb\"]")).await;
    assert_eq!(available(&world, "1xH100").await, 7, "a divided one is not given away as a whole");
    assert_eq!((available(&world, "2xH100MIG1G10GB").await, available(&world, "1xH100MIG2G20GB").await), (1, 1));
    let cluster = world.running("2xH100MIG1G10GB", 1).await;
    let view = world.info(&cluster).await;
    assert_eq!(view.instances[0].gpus, ["gpu-0-mig-0", "gpu-0-mig-1"]);
    assert!(view.simulated);
    assert_eq!(view.gpus["gpu-0-mig-0"].facts.parent.as_deref(), Some("gpu-0"));
    let (waits, _) = world.create("1xH100MIG1G10GB", 1).await;
    world.settle().await;
    assert!(explanation(&world, &waits).await.contains("1 H100MIG1G10GB GPU, 0 are free"));
    world.assert_agreement("with slices").await;
}

/// Dividing a GPU, or undoing it, while an instance holds the GPU or a slice of it, gives no part of it to another
/// instance.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn gpu_and_its_slices_have_one_owner(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let (control, caller) = (&world.control, &world.caller);
    observe_gpus(&world).await;
    let whole = world.running("1xH100", 1).await;
    assert_eq!(world.info(&whole).await.instances[0].gpus, ["gpu-0"]);
    script(&world, &fault(0, "mig = [\"3g.40gb\", \"3g.40gb\"]")).await;
    assert_eq!(available(&world, "1xH100MIG3G40GB").await, 0);
    let (slice, _) = world.create("1xH100MIG3G40GB", 1).await;
    world.settle().await;
    let explained = explanation(&world, &slice).await;
    assert!(explained.contains("gpu-0-mig-0: an instance has the whole GPU that it is a slice of"), "{explained}");
    let explained = explanation(&world, &whole).await;
    assert!(
        explained.contains("GPU gpu-0 of") && explained.contains("not there any more"),
        "its owner is informed: {explained}"
    );
    clusters::destroy(control, caller, whole.as_str()).await.unwrap();
    world.settle().await;
    assert_eq!(state(&world, &slice).await, "RUNNING");
    assert_eq!(world.info(&slice).await.instances[0].gpus, ["gpu-0-mig-0"]);

    script(&world, "").await;
    let listed = host::list_gpus(control, caller).await.unwrap();
    let lost: Vec<_> = listed.iter().filter(|gpu| gpu.owner.is_some()).map(|gpu| gpu.known.gpu.id.as_str()).collect();
    assert_eq!((listed.len(), lost), (9, vec!["gpu-0-mig-0"]), "a GPU that is held stays listed");
    assert_eq!(health(&world, 8).await, "FATAL");
    host::clear_gpu(control, caller, "gpu-0").await.unwrap();
    world.wait(Settings::default().gpu_recovery).await;
    observe_gpus(&world).await;
    let (large, _) = world.create("8xH100", 1).await;
    world.settle().await;
    let explained = explanation(&world, &large).await;
    assert!(
        explained.contains("7 are free (1 of 8 H100 GPUs is not offered: gpu-0: an instance has a slice of it)"),
        "{explained}"
    );
    clusters::destroy(control, caller, slice.as_str()).await.unwrap();
    world.settle().await;
    assert_eq!(state(&world, &large).await, "RUNNING");
    observe_gpus(&world).await;
    assert_eq!(host::list_gpus(control, caller).await.unwrap().len(), 8, "a slice that is no more is not missed");
    world.assert_agreement("after slices came and went").await;
}

/// A GPU that another process holds is not assigned.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn gpu_held_by_a_process_is_not_assigned(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    script(&world, &fault(0, "processes = [4242]")).await;
    let small = world.running("1xH100", 1).await;
    assert_eq!(world.info(&small).await.instances[0].gpus, ["gpu-1"]);
    clusters::destroy(&world.control, &world.caller, small.as_str()).await.unwrap();
    let (large, _) = world.create("8xH100", 1).await;
    world.settle().await;
    let explained = explanation(&world, &large).await;
    assert!(explained.contains("gpu-0: a process that belongs to no instance uses it"), "{explained}");
    script(&world, "").await;
    world.wait(Settings::default().gpu_recovery).await;
    assert_eq!(state(&world, &large).await, "PENDING", "only an observation changes that");
    observe_gpus(&world).await;
    assert_eq!(state(&world, &large).await, "RUNNING");
}

/// Clusters claim everything that is left while GPUs disappear and come back: each GPU has at most one owner, and none
/// is assigned that is not offered.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn each_gpu_has_at_most_one_owner(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    for round in 0..4 {
        let create = |kind: &str| {
            let new = NewCluster { instance_type: kind.into(), ..NewCluster::default() };
            clusters::create(&world.control, &world.caller, new)
        };
        let creates = ["2xH100", "1xH100", "2xH100"].map(create);
        let (created, ()) = tokio::join!(futures::future::join_all(creates), async {
            script(&world, &fault(round, "lost = true")).await;
            let gpu = format!("gpu-{}", 7 - round);
            host::drain_gpu(&world.control, &world.caller, &gpu, Some(DrainReason(None))).await.unwrap();
        });
        world.settle().await;
        let before = owned(&world, created.iter().flatten().map(|accepted| &accepted.cluster)).await;
        let more = futures::future::join_all(["1xH100", "2xH100", "1xH100"].map(create)).await;
        world.settle().await;
        let all: Vec<ClusterId> = created.into_iter().chain(more).map(|new| new.unwrap().cluster).collect();
        let owned = owned(&world, &all).await;
        let once: BTreeSet<&String> = owned.iter().collect();
        assert_eq!(owned.len(), once.len(), "two have the same: {owned:?}");
        let held = world.store.read(instances::held).await.unwrap();
        let new: Vec<_> = owned.iter().filter(|gpu| !before.contains(gpu)).collect();
        assert!(
            !new.iter().any(|gpu| held.withheld.contains_key(*gpu)),
            "{new:?} are given, {:?} withheld",
            held.withheld
        );
        world.assert_agreement("in the middle of it").await;
        for cluster in all {
            assert_ne!(state(&world, &cluster).await, "FAILED", "a cluster without GPUs waits");
            clusters::destroy(&world.control, &world.caller, cluster.as_str()).await.unwrap();
        }
        world.settle().await;
    }
    let held = world.store.read(instances::held).await.unwrap();
    assert_eq!((held.gpus.len(), held.withheld.len()), (0, 8));
    let (waits, _) = world.create("1xH100", 1).await;
    world.settle().await;
    assert_eq!(state(&world, &waits).await, "PENDING", "there is none left that is offered");
}
