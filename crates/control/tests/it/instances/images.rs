//! Clusters of container images: which references are accepted, what becomes of them, and what is reported meanwhile.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rstest::rstest;
use tarn_control::operations::{clusters, requests};
use tarn_control::runner::Runner;
use tarn_control::testing::{World, world};
use tarn_control::{Control, Kind, Settings};
use tarn_model::requests::RequestStatus;
use tarn_store::testing::DatabaseKind;
use tokio::sync::mpsc;

/// How long anything may take before it counts as stuck.
const DEADLINE: Duration = Duration::from_secs(60);

/// All boots of all nodes use one exact image.
#[tokio::test(flavor = "multi_thread")]
async fn all_boots_use_one_exact_image() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let (cluster, request) = world.create_of("1xCPU", 2, Some("127.0.0.1:5000/app:1")).await;
    assert_eq!(world.info(&cluster).await.cluster.image, None, "it is not known yet");
    world.settle().await;
    assert_eq!(world.request(&request).await.request.status(), RequestStatus::Completed);
    let found = world.info(&cluster).await.cluster;
    let image = found.image.clone().unwrap();
    assert!(image.starts_with("127.0.0.1:5000/app@sha256:"), "{image}");
    assert_eq!(found.container.as_deref(), Some("127.0.0.1:5000/app:1"), "shown as it was asked for");
    assert!(world.events_of(cluster.as_str()).await.contains(&"cluster.image_ready".into()));
    clusters::restart(&world.control, &world.caller, cluster.as_str()).await.unwrap();
    world.settle().await;
    let started = world.driver.images.lock().unwrap().clone();
    assert_eq!(started, vec![Some(image); 4], "two nodes, twice");
    let shares = world.driver.shares.lock().unwrap().clone();
    assert_eq!(shares, [found.owner.scope()], "it is pulled in the turns of its owner");
    world.assert_agreement("after a restart").await;
}

/// A claim whose image cannot be pulled fails with the message of the driver.
#[tokio::test(flavor = "multi_thread")]
async fn failed_pull_reports_driver_message() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let (cluster, request) = world.create_of("1xCPU", 1, Some("fault.invalid/app")).await;
    world.settle().await;
    let ended = world.request(&request).await;
    assert_eq!(ended.request.status(), RequestStatus::Failed);
    let expected = "fault.invalid/app could not be pulled: there is no such registry";
    assert_eq!(ended.explanation.as_deref(), Some(expected));
    assert!(world.info(&cluster).await.explanation.unwrap().contains(expected));
    let held = world.store.read(tarn_store::instances::held).await.unwrap();
    assert_eq!(held.cpu_milli, 0, "its capacity is free again");
    clusters::destroy(&world.control, &world.caller, cluster.as_str()).await.unwrap();
    world.settle().await;
    world.assert_agreement("after a failed pull").await;
}

/// The name of the built-in image means that no image is pulled.
#[tokio::test(flavor = "multi_thread")]
async fn host_image_is_not_pulled() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let (cluster, _) = world.create_of("1xCPU", 1, Some("host")).await;
    world.settle().await;
    let found = world.info(&cluster).await.cluster;
    assert_eq!((found.container.as_deref(), found.image), (Some("host"), None));
    assert_eq!(*world.driver.images.lock().unwrap(), [None]);
}

/// A malformed image reference is refused with the reason.
#[tokio::test(flavor = "multi_thread")]
async fn malformed_image_reference_is_refused() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    for (container, why) in
        [("", "empty"), ("Debian", "capital letters"), ("a b", "' '"), ("a:b:c", "is not a tag"), ("a@b", "sha256")]
    {
        let new = clusters::NewCluster {
            instance_type: "1xCPU".into(),
            container: Some(container.into()),
            ..Default::default()
        };
        let refused = clusters::create(&world.control, &world.caller, new).await.unwrap_err();
        assert_eq!((refused.kind, refused.code), (Kind::Invalid, "invalid_container"));
        assert!(refused.message.contains(why), "{container}: {}", refused.message);
    }
}

/// Images come only from the registries that the operator allows.
#[tokio::test(flavor = "multi_thread")]
async fn registries_are_restricted() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let places = vec!["docker.io/library".to_owned(), "ghcr.io/team".to_owned()];
    let world = world.with_settings(Settings { allowed_registries: Some(places), ..Settings::default() });
    let create = async |container: &str| {
        let container = Some(container.to_owned());
        let new = clusters::NewCluster { instance_type: "1xCPU".into(), container, ..Default::default() };
        clusters::create(&world.control, &world.caller, new).await
    };
    for strange in ["127.0.0.1:5000/app", "someone/tool", "ghcr.io/teammates/app"] {
        let refused = create(strange).await.unwrap_err();
        assert_eq!((refused.kind, refused.code), (Kind::Invalid, "registry_not_allowed"));
        let expected = format!("only from docker.io/library, ghcr.io/team, not {strange}");
        assert!(refused.message.contains(&expected), "{}", refused.message);
    }
    for known in ["debian:12", "ghcr.io/team/app", "host"] {
        create(known).await.unwrap();
    }
}

/// Without an allowed registry, images are disabled.
#[tokio::test(flavor = "multi_thread")]
async fn empty_registry_list_disables_images() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let world = world.with_settings(Settings { allowed_registries: Some(Vec::new()), ..Settings::default() });
    let container = Some("debian:12".to_owned());
    let new = clusters::NewCluster { instance_type: "1xCPU".into(), container, ..Default::default() };
    let refused = clusters::create(&world.control, &world.caller, new).await.unwrap_err();
    assert_eq!(refused.code, "registry_not_allowed");
    assert_eq!(refused.message, "container images are disabled on this engine; omit container");
}

/// A runner in the background, with a pull that reports what the test tells it to.
struct Pulling {
    says: Option<mpsc::UnboundedSender<String>>,
    running: tokio::task::JoinHandle<()>,
}

impl Pulling {
    async fn start(world: &World) -> Pulling {
        let (says, pulls) = mpsc::unbounded_channel();
        *world.driver.pulls.lock().unwrap() = Some(pulls);
        let runner = Runner::new(world.control.clone());
        let running = tokio::spawn(async move {
            runner.tick().await.unwrap();
        });
        Pulling { says: Some(says), running }
    }

    fn report(&self, message: &str) {
        self.says.as_ref().unwrap().send(message.into()).unwrap();
    }

    async fn finish(mut self) {
        drop(self.says.take());
        tokio::time::timeout(DEADLINE, self.running).await.expect("the pull ends").unwrap();
    }
}

/// Polls until the explanation of a request contains this text.
async fn explained(world: &World, control: &Control, id: &str, wanted: &str) -> String {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        let found = requests::info(control, &world.caller, id).await.unwrap();
        let said = found.explanation.unwrap_or_default();
        if said.contains(wanted) {
            return said;
        }
        assert!(tokio::time::Instant::now() < deadline, "{wanted:?} is not in {said:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The progress of a pull is visible in the replica that runs it and in others.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn pull_progress_is_visible_in_all_replicas(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let (cluster, request) = world.create_of("1xCPU", 1, Some("app")).await;
    let elsewhere = world.beside();
    let pulling = Pulling::start(&world).await;
    explained(&world, &world.control, request.as_str(), "step 2 of 5 (pull): requesting app; until ").await;
    let before = world.control.generation();
    pulling.report("pulls app: 1 of 2 MB, layer 1 of 1");
    explained(&world, &world.control, request.as_str(), "(pull): pulls app: 1 of 2 MB, layer 1 of 1; until ").await;
    if let Some(before) = before {
        assert!(world.control.generation().unwrap() > before, "earlier responses are outdated");
    }
    let said = world.info(&cluster).await.explanation.unwrap();
    assert!(said.contains("1 of 2 MB") && said.contains(request.as_str()), "{said}");
    // Another replica sees it a little later, because it is stored.
    explained(&world, &elsewhere, request.as_str(), "(pull): pulls app: 1 of 2 MB").await;
    pulling.finish().await;
    world.settle().await;
    let ended = world.request(&request).await;
    assert_eq!(ended.request.status(), RequestStatus::Completed);
    assert_eq!(ended.explanation.as_deref(), Some("The cluster is running."));
}

/// A pull has its own deadline, and the other steps have the usual one.
#[tokio::test(flavor = "multi_thread")]
async fn pull_has_its_own_deadline() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let (_, request) = world.create_of("1xCPU", 1, Some("app")).await;
    let began = tarn_model::Clock::now(&*world.clock);
    let pulling = Pulling::start(&world).await;
    explained(&world, &world.control, request.as_str(), "requesting app").await;
    let until = world.request(&request).await.request.deadline;
    assert_eq!(until.until(began).as_secs(), Settings::default().image_pull_deadline.as_secs());
    pulling.finish().await;
    let until = world.request(&request).await.request.deadline;
    assert_eq!(
        until.until(began).as_secs(),
        Settings::default().work_deadline.as_secs(),
        "from the end of the pull on"
    );
}

/// A pull continues while it reports progress, but not for ever.
#[tokio::test(start_paused = true)]
async fn pull_continues_while_it_reports() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let step = Duration::from_millis(300);
    let settings = Settings { step_timeout: step, detach_grace: Duration::ZERO, ..Settings::default() };
    let world = world.with_settings(settings);
    // Many times as long as a step may take.
    *world.driver.reports.lock().unwrap() = Some((20, step / 3));
    let (_, request) = world.create_of("1xCPU", 1, Some("app")).await;
    let runner = Runner::new(world.control.clone());
    runner.tick().await.unwrap();
    assert_eq!(world.driver.reported.load(Ordering::SeqCst), 20, "it was not given up before");
    let silent = world.request(&request).await.request;
    assert_eq!((silent.status(), silent.attempts), (RequestStatus::Retrying, 1));
    assert!(silent.message.unwrap().contains("the step took longer than"));
}

/// A cluster without an image does not count the pull as a step.
#[tokio::test(flavor = "multi_thread")]
async fn steps_without_image_are_counted() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    struct Failing;
    impl tarn_control::runner::faults::Faults for Failing {
        fn at(&self, at: tarn_control::runner::faults::FaultPoint) -> tarn_control::runner::faults::Fault {
            match at.step {
                "provision" => tarn_control::runner::faults::Fault::ErrorBefore,
                _ => tarn_control::runner::faults::Fault::None,
            }
        }
    }
    let (_, plain) = world.create("1xCPU", 1).await;
    let (_, of_image) = world.create_of("1xCPU", 1, Some("app")).await;
    Runner::with_faults(world.control.clone(), std::sync::Arc::new(Failing)).tick().await.unwrap();
    let said = world.request(&plain).await.explanation.unwrap();
    assert!(said.starts_with("Retries step 2 of 4 (provision); until "), "{said}");
    let said = world.request(&of_image).await.explanation.unwrap();
    assert!(said.starts_with("Retries step 3 of 5 (provision); until "), "{said}");
}

/// A cluster that waits for its image can be destroyed.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn cluster_is_destroyed_during_pull(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let (cluster, request) = world.create_of("1xCPU", 2, Some("app")).await;
    let pulling = Pulling::start(&world).await;
    explained(&world, &world.control, request.as_str(), "requesting app").await;
    clusters::destroy(&world.control, &world.caller, cluster.as_str()).await.unwrap();
    // The pull succeeds anyway, and the runner that pulled must find that the cluster is gone.
    pulling.finish().await;
    world.settle().await;
    let claim = world.request(&request).await;
    assert_eq!(claim.request.status(), RequestStatus::Failed);
    assert_eq!(claim.explanation.as_deref(), Some("the cluster was destroyed while its image was fetched"));
    assert_eq!(world.info(&cluster).await.cluster.state.name(), "DESTROYED");
    assert!(world.driver.images.lock().unwrap().is_empty(), "no instance was made");
    let held = world.store.read(tarn_store::instances::held).await.unwrap();
    assert_eq!(held, Default::default(), "its capacity is free again");
    world.assert_agreement("after the destruction").await;
}
