//! An installation that was restored on another host: what ran has ended, with the reason, and can be removed.

use std::collections::BTreeSet;
use std::sync::Arc;

use rstest::rstest;
use tarn_control::audit::miscounts;
use tarn_control::host_binding;
use tarn_control::operations::storage::VolumeEdit;
use tarn_control::operations::{clusters, jobs, storage};
use tarn_control::restored::{audit_restored, end_former_work};
use tarn_control::runner::faults::{Fault, FaultPoint, Faults};
use tarn_control::testing::{World, host_inventory, world};
use tarn_model::clock_jumps::{Anchor, Reading};
use tarn_model::events::RestoreLosses;
use tarn_model::gpus::Drain;
use tarn_model::host_binding::{Claimant, DriverBinding, HostBinding, Place};
use tarn_model::ids::VolumeId;
use tarn_model::requests::RequestStatus;
use tarn_store::testing::DatabaseKind;
use tarn_store::{clock, gpus, host, installation, requests};

use crate::jobs::operations::{new, place, queued};

const WHY: &str = "The installation was restored from a backup";

/// Every step fails and is tried again, so that requests stop in the middle of their work.
struct Stuck(&'static str);

impl Faults for Stuck {
    fn at(&self, at: FaultPoint) -> Fault {
        if at.step == self.0 && !at.undo { Fault::Crash } else { Fault::None }
    }
}

async fn end(world: &World, present: &BTreeSet<VolumeId>) -> RestoreLosses {
    let ended = end_former_work(&world.store, WHY, present, ("objects_directory", "mark")).await.unwrap();
    assert_eq!(audit_restored(&world.store, present).await.unwrap(), Vec::<String>::new());
    assert_eq!(miscounts(&world.store).await.unwrap(), []);
    ended
}

/// The engine on the new host, where nothing exists.
async fn moved(world: World) -> World {
    std::fs::remove_file(world.fresh.dir.path().join("fake-world.json")).unwrap();
    world.moved_to(host_inventory()).await
}

/// Destroys everything as its owners would.
async fn destroy_all(world: &World, clusters: &[String], volumes: &[String]) {
    for id in clusters {
        clusters::destroy(&world.control, &world.caller, id).await.unwrap();
    }
    world.settle().await;
    for id in volumes {
        storage::destroy(&world.control, &world.caller, id).await.unwrap();
    }
    world.settle().await;
    world.assert_agreement("when everything is destroyed").await;
}

/// Requests of every kind end, and what they worked on can be removed on the new host.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn restored_requests_end(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let (control, caller) = (&world.control, &world.caller);
    let (mut all, mut volumes, mut open) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..5 {
        all.push(world.running("1xCPU", 1).await.to_string());
        volumes.push(world.ready_volume().await.to_string());
    }
    storage::attach(control, caller, &volumes[1], &all[1], true).await.unwrap();
    world.settle().await;
    open.push(clusters::restart(control, caller, &all[0]).await.unwrap().request);
    open.push(storage::detach(control, caller, &volumes[1], &all[1], false).await.unwrap().request);
    open.push(storage::attach(control, caller, &volumes[2], &all[2], false).await.unwrap().request);
    open.push(clusters::destroy(control, caller, &all[3]).await.unwrap().request);
    let larger = VolumeEdit { size_gb: Some(20), ..VolumeEdit::default() };
    open.push(storage::edit(control, caller, &volumes[3], larger).await.unwrap().request);
    open.push(storage::destroy(control, caller, &volumes[4]).await.unwrap().request);
    let made =
        storage::create(control, caller, storage::NewVolume { size_gb: 10, ..Default::default() }).await.unwrap();
    open.push(made.request);
    volumes.push(made.volume.to_string());
    let (waiting, request) = world.create("8xH100", 1).await;
    let (second, other) = world.create("8xH100", 1).await;
    all.extend([waiting.to_string(), second.to_string()]);
    open.extend([request, other]);
    let kinds: BTreeSet<_> = world
        .store
        .read(|tx| requests::open(tx, None, 100))
        .await
        .unwrap()
        .iter()
        .map(|request| request.kind.request_type().name())
        .collect();
    assert_eq!(kinds.len(), 8, "every kind with steps is in progress: {kinds:?}");

    let kept = BTreeSet::from([volumes[0].parse().unwrap()]);
    let ended = end(&world, &kept).await;
    assert_eq!((ended.requests, ended.clusters.len(), ended.volumes), (open.len() as u64, all.len(), 1));
    for id in &open {
        let request = world.request(id).await.request;
        assert_eq!(request.status(), RequestStatus::Failed);
        assert!(request.message.unwrap().contains(WHY));
    }
    for id in &all {
        let view = world.info(&id.parse().unwrap()).await;
        assert!(view.cluster.state.reason().unwrap().contains(WHY), "{view:?}");
        assert!(view.attachment.is_none() && view.instances.iter().all(|node| !node.holds_capacity), "{view:?}");
        assert_eq!(clusters::restart(control, caller, id).await.unwrap_err().code, "cluster_not_restartable");
    }
    let view = storage::info(control, caller, &volumes[0]).await.unwrap();
    assert_eq!(view.volume.state.name(), "READY");
    let world = moved(world).await;
    destroy_all(&world, &all, &volumes).await;
}

/// Requests that are in the middle of their steps end as well.
#[rstest]
#[case("provision")]
#[case("configure")]
#[case("confirm")]
#[tokio::test(flavor = "multi_thread")]
async fn restored_request_ends_at_any_step(#[case] step: &'static str) {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let (cluster, request) = world.create("1xH100", 2).await;
    let runner = tarn_control::runner::Runner::with_faults(world.control.clone(), Arc::new(Stuck(step)));
    runner.tick().await.unwrap();
    assert_eq!(world.request(&request).await.request.status(), RequestStatus::Processing);
    assert_eq!(end(&world, &BTreeSet::new()).await.requests, 1);
    let world = moved(world).await;
    assert_eq!(world.info(&cluster).await.cluster.state.name(), "FAILED");
    world.running("8xH100", 1).await;
    destroy_all(&world, &[cluster.to_string()], &[]).await;
}

/// Jobs in every state end, also those that wait for files.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn restored_jobs_end(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let cluster = world.running("1xCPU", 1).await;
    let placed = queued(&world, &cluster).await;
    place(&world, &placed).await;
    let waiting = queued(&world, &cluster).await;
    let draft = jobs::create(&world.control, &world.caller, new(&cluster)).await.unwrap().job;
    assert_eq!(end(&world, &BTreeSet::new()).await.jobs, 3);
    for job in [placed, waiting, draft] {
        let view = jobs::info(&world.control, &world.caller, job.id.as_str()).await.unwrap();
        assert_eq!(view.job.state.status(), "failed", "{view:?}");
        assert!(view.job.ended.is_some());
    }
    assert_eq!(world.events("job.ended").await.len(), 3);
}

/// Facts about the former host are forgotten; facts about the data stay.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn restored_installation_forgets_its_host(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let write = world.store.write(|tx| {
        let since = tx.now();
        host::set_drain(tx, Some(&Drain { reason: None, since }))?;
        installation::set(tx, "secret_key", "fingerprint")?;
        installation::set(tx, "machine_boot", "boot")?;
        installation::set(tx, "machine_boot_open", "{}")?;
        let former = Place { installation: "former".to_owned(), seat: "boot /var/lib/tarn".to_owned() };
        installation::set_driver_binding(tx, &DriverBinding::Host(HostBinding::alive(former, since)))?;
        let reading = Reading { up_us: 1, now: since, set: since, boot: "boot".to_owned() };
        clock::set_anchor(tx, &Anchor::default().at(&reading))?;
        installation::set(tx, "objects_directory", "former")
    });
    write.await.unwrap();
    end(&world, &BTreeSet::new()).await;
    let kept = world.store.read(|tx| {
        let facts = ["secret_key", "machine_boot", "objects_directory"].map(|key| installation::get(tx, key));
        Ok::<_, tarn_store::Error>((facts.into_iter().collect::<Result<Vec<_>, _>>()?, gpus::all(tx)?.len()))
    });
    let expected = vec![Some("fingerprint".to_owned()), None, Some("mark".to_owned())];
    assert_eq!(kept.await.unwrap(), (expected, 0));
    let host = world.store.read(|tx| {
        let open = installation::get(tx, "machine_boot_open")?;
        Ok::<_, tarn_store::Error>((installation::driver_binding(tx)?, clock::anchor(tx)?, open))
    });
    assert_eq!(host.await.unwrap(), (None, Anchor::default(), None), "nothing binds it to the former host");
    // An engine with another id and on another host is admitted at once, though the former one was just alive.
    let new = Place { installation: "new".to_owned(), seat: "boot /srv/restored".to_owned() };
    assert_eq!(host_binding::bind(&world.store, Claimant::Host(new)).await.unwrap(), Ok(()));
    let world = moved(world).await;
    world.running("1xCPU", 1).await;
    assert_eq!(world.events("machine.restored").await.len(), 1);
}
