//! A complete control plane with a caller, on an empty database and an empty host.

pub(crate) mod observing_driver;

use std::sync::Arc;
use std::time::Duration;

use tarn_control::operations::admin::{self, NewUser};
use tarn_control::operations::{clusters, requests, storage};
use tarn_control::runner::Runner;
use tarn_control::runner::faults::Faults;
use tarn_control::{Caller, Control, Parts, Secrets, Settings, audit, bootstrap};
use tarn_driver::fake::{FakeDriver, Settings as FakeSettings, read_world};
use tarn_driver::gpus::{SimulatedProbe, Watch};
use tarn_model::Clock;
use tarn_model::capacity::{Gpu, Inventory};
use tarn_model::catalogue::{Catalogue, Prices};
use tarn_model::ids::{ClusterId, JobId, RequestId, VolumeId};
use tarn_model::requests::Request;
use tarn_objects::Objects;
use tarn_store::Store;
use tarn_store::events::{self, Event};
use tarn_store::testing::{DatabaseKind, Fresh, ManualClock, SeededIds, fresh};

use observing_driver::ObservingDriver;

pub(crate) struct World {
    pub(crate) control: Control,
    pub(crate) store: Store,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) driver: Arc<ObservingDriver>,
    pub(crate) caller: Caller,
    pub(crate) fresh: Fresh,
}

/// The script of faults for the simulated GPUs.
pub(crate) const FAULTS: &str = "faults.toml";

/// Eight CPUs and eight simulated GPUs.
pub(crate) fn host_inventory() -> Inventory {
    let gpu = |n: u32| Gpu { id: format!("gpu-{n}"), model: "H100".into(), simulated: true };
    Inventory {
        cpu_milli: 8_000,
        memory_bytes: 8 << 30,
        gpus: (0..8).map(gpu).collect(),
        storage_bytes: 10_000_000_000_000,
    }
}

pub(crate) async fn world(database: DatabaseKind) -> Option<World> {
    let fresh = fresh(database).await?;
    let (clock, ids) = (Arc::new(ManualClock::default()), Arc::new(SeededIds::new(7)));
    let store = Store::open(&fresh.database, clock.clone(), ids.clone()).await.unwrap();
    let (control, driver) = control(&store, &fresh, clock.clone(), ids, (host_inventory(), Settings::default()));
    let key = "tp-0000000000000000000000000000000000000000";
    assert!(bootstrap::make_admin(&store, key.to_owned()).await.unwrap());
    let caller = control.authenticate(key).await.unwrap();
    Some(World { control, store, clock, driver, caller, fresh })
}

fn control(
    store: &Store,
    fresh: &Fresh,
    clock: Arc<ManualClock>,
    ids: Arc<SeededIds>,
    (inventory, settings): (Inventory, Settings),
) -> (Control, Arc<ObservingDriver>) {
    let probe = SimulatedProbe::new(inventory.gpus.clone(), Some(fresh.dir.path().join(FAULTS)));
    let watch = Arc::new(Watch::simulated(probe, clock.clone()));
    watch.look(|_, _| true);
    control_with(store, fresh, clock, ids, (inventory, settings, watch))
}

fn control_with(
    store: &Store,
    fresh: &Fresh,
    clock: Arc<ManualClock>,
    ids: Arc<SeededIds>,
    (inventory, settings, watch): (Inventory, Settings, Arc<Watch>),
) -> (Control, Arc<ObservingDriver>) {
    let prices = Prices::default();
    let driver = FakeDriver::open(fresh.dir.path(), inventory.clone(), FakeSettings::default()).unwrap();
    let driver = Arc::new(ObservingDriver::new(driver.with_gpus(watch)));
    let secrets = Secrets::new([7; 32]);
    let objects = Objects::open(tarn_objects::Components {
        store: store.clone(),
        directory: fresh.dir.path().join("objects"),
        secret: secrets.object_storage_key(),
        settings: tarn_objects::Settings::default(),
        clock: clock.clone(),
        ids: ids.clone(),
    });
    let control = Control::new(Parts {
        store: store.clone(),
        driver: driver.clone(),
        catalogue: Catalogue::derived(&inventory, &prices),
        inventory,
        prices,
        settings,
        secrets,
        ssh: None,
        objects: objects.unwrap(),
        s3: None,
        clock,
        ids,
    });
    (control, driver)
}

impl World {
    /// The same engine, started again on another host.
    pub(crate) async fn moved_to(self, inventory: Inventory) -> Self {
        let world = self.again(inventory, Settings::default());
        Runner::new(world.control.clone()).recover(true).await.unwrap();
        world
    }

    /// The same engine, started again with another watch of its GPUs, as `tarn serve` does it.
    pub(crate) async fn started_with(self, watch: Arc<Watch>, seed: u64) -> Self {
        let inventory = Inventory { gpus: watch.last(), ..host_inventory() };
        let (clock, ids) = (self.clock.clone(), Arc::new(SeededIds::new(seed)));
        let given = (inventory, Settings::default(), watch);
        let (control, driver) = control_with(&self.store, &self.fresh, clock, ids, given);
        tarn_control::reconcilers::gpus::tick(&control).await.unwrap();
        Runner::new(control.clone()).recover(true).await.unwrap();
        World { control, driver, ..self }
    }

    /// The same engine, started again with other settings.
    pub(crate) fn with_settings(self, settings: Settings) -> Self {
        self.again(host_inventory(), settings)
    }

    /// Another engine beside this one, on the same database and the same host.
    pub(crate) fn beside(&self) -> Control {
        let ids = Arc::new(SeededIds::new(9));
        control(&self.store, &self.fresh, self.clock.clone(), ids, (host_inventory(), Settings::default())).0
    }

    fn again(self, inventory: Inventory, settings: Settings) -> Self {
        let ids = Arc::new(SeededIds::new(8));
        let (control, driver) = control(&self.store, &self.fresh, self.clock.clone(), ids, (inventory, settings));
        World { control, driver, ..self }
    }

    /// A caller in another organization.
    pub(crate) async fn other_tenant(&self) -> Caller {
        let new = NewUser { email: "eve@example.org".into(), org_name: Some("others".into()) };
        let made = admin::create_user(&self.control, &self.caller, new).await.unwrap();
        self.control.authenticate(&made.api_key).await.unwrap()
    }

    /// Runs until nothing is due within an hour.
    pub(crate) async fn settle(&self) {
        self.settle_with(&Runner::new(self.control.clone())).await;
    }

    /// Runs with injected faults until the request ends; a crashed runner is replaced when its lease has expired.
    pub(crate) async fn settle_with_faults(&self, faults: Arc<dyn Faults>) {
        self.settle_with(&Runner::with_faults(self.control.clone(), faults)).await;
    }

    async fn settle_with(&self, runner: &Runner) {
        for _ in 0..200 {
            let soon = self.clock.now().after(Duration::from_secs(3600));
            match runner.tick().await.unwrap() {
                Some(next) if next < soon => self.clock.move_to(next),
                // Only the capacity queue is left, and its deadline is far away.
                Some(_) => return,
                None if self.open().await.is_empty() => return,
                // A runner died with a lease.
                None => self.clock.advance(Settings::default().lease),
            }
        }
        panic!("it never settles: {:?}", self.open().await);
    }

    async fn open(&self) -> Vec<Request> {
        let filter = requests::RequestFilter { include_org: true, limit: Some(1000), ..Default::default() };
        let page = requests::list(&self.control, &self.caller, filter).await.unwrap();
        page.items.into_iter().map(|view| view.request).filter(|request| !request.status.is_terminal()).collect()
    }

    pub(crate) async fn request(&self, id: &RequestId) -> requests::RequestView {
        requests::info(&self.control, &self.caller, id.as_str()).await.unwrap()
    }

    /// The database and the world file of the fake driver must agree.
    pub(crate) async fn assert_agreement(&self, context: &str) {
        let seen = read_world(self.fresh.dir.path()).unwrap();
        let differences = audit::differences(&self.store, &seen).await.unwrap();
        assert!(differences.is_empty(), "{context}: {differences:#?}");
    }

    pub(crate) async fn create(&self, kind: &str, nodes: u32) -> (ClusterId, RequestId) {
        self.create_of(kind, nodes, None).await
    }

    /// A cluster whose nodes are started from an image.
    pub(crate) async fn create_of(&self, kind: &str, nodes: u32, image: Option<&str>) -> (ClusterId, RequestId) {
        let (instance_type, container) = (kind.into(), image.map(str::to_owned));
        let new = clusters::NewCluster { instance_type, num_nodes: Some(nodes), container, ..Default::default() };
        let accepted = clusters::create(&self.control, &self.caller, new).await.unwrap();
        (accepted.cluster.unwrap(), accepted.request)
    }

    pub(crate) async fn running(&self, kind: &str, nodes: u32) -> ClusterId {
        let (cluster, _) = self.create(kind, nodes).await;
        self.settle().await;
        let view = clusters::info(&self.control, &self.caller, cluster.as_str()).await.unwrap();
        assert_eq!(view.cluster.state.name(), "RUNNING");
        cluster
    }

    pub(crate) async fn ready_volume(&self) -> VolumeId {
        let new = storage::NewVolume { size_gb: 10, ..Default::default() };
        let volume = storage::create(&self.control, &self.caller, new).await.unwrap().volume.unwrap();
        self.settle().await;
        volume
    }

    pub(crate) async fn info(&self, cluster: &ClusterId) -> clusters::ClusterView {
        clusters::info(&self.control, &self.caller, cluster.as_str()).await.unwrap()
    }

    /// The events with this verb, oldest first.
    pub(crate) async fn events(&self, verb: &str) -> Vec<Event> {
        let all = self.store.read(|tx| events::after(tx, 0, 10_000)).await.unwrap();
        all.into_iter().filter(|event| event.verb == verb).collect()
    }

    /// The verbs of the events of one object, oldest first.
    pub(crate) async fn events_of(&self, object: &str) -> Vec<String> {
        let all = self.store.read(|tx| events::after(tx, 0, 10_000)).await.unwrap();
        all.into_iter().filter(|event| event.object == object).map(|event| event.verb).collect()
    }

    /// How many pieces of a log are rows.
    pub(crate) async fn inline_pieces(&self, job: &JobId) -> usize {
        self.store.read(|tx| tarn_store::job_logs::inline(tx, job)).await.unwrap().len()
    }

    /// Merges the rows of a small log into an object, as happens when there are many.
    pub(crate) async fn make_object(&self, job: &JobId) {
        self.control.objects().ensure_internal("jobs").await.unwrap();
        let job = job.clone();
        let write = self.store.write(move |tx| -> Result<(), tarn_objects::Error> {
            let pieces = tarn_store::job_logs::from(tx, &job, 0, 100)?;
            let data: Vec<u8> = pieces.into_iter().flat_map(|piece| piece.data.unwrap()).collect();
            tarn_objects::internal::put_small(tx, "jobs", &format!("{job}/log/{:020}", 0), &data)?;
            Ok(tarn_store::job_logs::merge(tx, &job, 0, data.len() as u64)?)
        });
        write.await.unwrap();
    }

    /// How many rows a job has: one or none.
    pub(crate) async fn rows_of_job(&self, job: &JobId) -> usize {
        let unknown = self.store.read(|tx| tarn_store::jobs::unknown(tx, std::slice::from_ref(job))).await.unwrap();
        1 - unknown.len()
    }

    pub(crate) async fn wait(&self, span: Duration) {
        self.clock.advance(span);
    }
}
