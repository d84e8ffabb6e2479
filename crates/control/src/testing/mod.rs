//! A complete control plane with a caller, on an empty database and an empty host, for tests of this crate and of those
//! above it.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod calls;
mod observing_driver;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tarn_driver::fake::{FakeDriver, Settings as FakeSettings, read_world};
use tarn_driver::gpus::{SimulatedProbe, Watch};
use tarn_model::Clock;
use tarn_model::capacity::{Gpu, Inventory};
use tarn_model::catalogue::{Catalogue, Prices};
use tarn_model::ids::{RequestId, fresh_api_key};
use tarn_model::requests::Request;
use tarn_objects::Objects;
use tarn_store::testing::{self, DatabaseKind, SeededIds};

pub use observing_driver::{Dial, ObservingDriver};

use crate::operations::requests;
use crate::runner::Runner;
use crate::runner::faults::Faults;
use crate::{Caller, Control, Parts, Secrets, Settings, SshEndpoint, audit, bootstrap};

/// The script of faults for the simulated GPUs.
pub const FAULTS: &str = "faults.toml";

/// An engine on the store of the world below.
pub struct World {
    base: testing::World,
    pub control: Control,
    pub driver: Arc<ObservingDriver>,
    /// The key of the first administrator.
    pub admin: String,
    /// The first administrator.
    pub caller: Caller,
}

impl Deref for World {
    type Target = testing::World;

    fn deref(&self) -> &testing::World {
        &self.base
    }
}

/// How the engine of a test differs from the usual one.
pub struct Setup {
    pub inventory: Inventory,
    pub settings: Settings,
    pub ssh: Option<SshEndpoint>,
    pub s3: Option<String>,
    /// Changes what the driver supports.
    pub adjust: fn(FakeDriver) -> FakeDriver,
    /// Observes the GPUs; without it they are simulated, with the faults of [`FAULTS`].
    pub watch: Option<Arc<Watch>>,
}

impl Default for Setup {
    fn default() -> Self {
        let (inventory, settings) = (host_inventory(), Settings::default());
        Setup { inventory, settings, ssh: None, s3: None, adjust: |driver| driver, watch: None }
    }
}

/// Eight CPUs and eight simulated GPUs.
pub fn host_inventory() -> Inventory {
    let gpu = |n: u32| Gpu { id: format!("gpu-{n}"), model: "H100".into(), simulated: true };
    Inventory {
        cpu_milli: 8_000,
        memory_bytes: 8 << 30,
        gpus: (0..8).map(gpu).collect(),
        storage_bytes: 10_000_000_000_000,
    }
}

/// A world with the usual engine. `None` where there is no PostgreSQL to test on.
pub async fn world(database: DatabaseKind) -> Option<World> {
    Some(World::on(testing::World::open(database).await?, Setup::default()).await)
}

fn engine(base: &testing::World, ids: Arc<SeededIds>, setup: Setup) -> (Control, Arc<ObservingDriver>) {
    let (Setup { inventory, settings, ssh, s3, adjust, watch }, prices) = (setup, Prices::default());
    let (store, clock, directory) = (base.store.clone(), base.clock.clone(), base.fresh.dir.path());
    let watch = watch.unwrap_or_else(|| {
        let probe = SimulatedProbe::new(inventory.gpus.clone(), Some(directory.join(FAULTS)));
        let watch = Arc::new(Watch::simulated(probe, clock.clone()));
        watch.look(|_, _| true);
        watch
    });
    let fake = FakeDriver::open(directory, inventory.clone(), FakeSettings::default()).unwrap();
    let driver = Arc::new(ObservingDriver::new(adjust(fake).with_gpus(watch)));
    let secrets = Secrets::new([7; 32]);
    let objects = Objects::open(tarn_objects::Components {
        store: store.clone(),
        directory: directory.join("objects"),
        secret: secrets.object_storage_key(),
        settings: tarn_objects::Settings { access: settings.access, ..Default::default() },
        clock: clock.clone(),
        ids: ids.clone(),
    });
    let control = Control::new(Parts {
        store,
        driver: driver.clone(),
        catalogue: Catalogue::derived(&inventory, &prices),
        inventory,
        prices,
        settings,
        secrets,
        ssh,
        objects: objects.unwrap(),
        s3,
        clock,
        ids,
    });
    (control, driver)
}

impl World {
    /// An engine with its first administrator.
    pub async fn on(base: testing::World, setup: Setup) -> Self {
        let (control, driver) = engine(&base, base.ids.clone(), setup);
        let admin = fresh_api_key(&*base.ids);
        assert!(bootstrap::make_admin(&base.store, admin.clone()).await.unwrap());
        let caller = control.authenticate(&admin).await.unwrap();
        World { base, control, driver, admin, caller }
    }

    /// The same engine, started again on another host.
    pub async fn moved_to(self, inventory: Inventory) -> Self {
        let world = self.again(8, Setup { inventory, ..Setup::default() });
        Runner::new(world.control.clone()).recover(true).await.unwrap();
        world
    }

    /// The same engine, started again with another watch of its GPUs, as `tarn serve` does it.
    pub async fn started_with(self, watch: Arc<Watch>, seed: u64) -> Self {
        let inventory = Inventory { gpus: watch.last(), ..host_inventory() };
        let world = self.again(seed, Setup { inventory, watch: Some(watch), ..Setup::default() });
        crate::reconcilers::gpus::tick(&world.control).await.unwrap();
        Runner::new(world.control.clone()).recover(true).await.unwrap();
        world
    }

    /// The same engine, started again with other settings.
    pub fn with_settings(self, settings: Settings) -> Self {
        self.again(8, Setup { settings, ..Setup::default() })
    }

    /// Another engine beside this one, on the same database and the same host.
    pub fn beside(&self) -> Control {
        engine(&self.base, Arc::new(SeededIds::new(9)), Setup::default()).0
    }

    fn again(self, seed: u64, setup: Setup) -> Self {
        let (control, driver) = engine(&self.base, Arc::new(SeededIds::new(seed)), setup);
        World { control, driver, ..self }
    }

    /// Runs until nothing is due within twenty minutes.
    pub async fn settle(&self) {
        self.settle_with(&Runner::new(self.control.clone())).await;
    }

    /// Runs with injected faults until the request ends; a crashed runner is replaced when its lease has expired.
    pub async fn settle_with_faults(&self, faults: Arc<dyn Faults>) {
        self.settle_with(&Runner::with_faults(self.control.clone(), faults)).await;
    }

    async fn settle_with(&self, runner: &Runner) {
        for _ in 0..200 {
            let soon = self.clock.now().after(Duration::from_secs(20 * 60));
            match runner.tick().await.unwrap() {
                Some(next) if next < soon => self.clock.move_to(next),
                // Only the capacity queue is left: its deadlines and its turns to reserve are far away.
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
        page.items.into_iter().map(|view| view.request).filter(|request| !request.status().is_terminal()).collect()
    }

    /// The request as the caller sees it.
    pub async fn request(&self, id: &RequestId) -> requests::RequestView {
        requests::info(&self.control, &self.caller, id.as_str()).await.unwrap()
    }

    /// The database and the world file of the fake driver must agree, and the counts with the rows.
    pub async fn assert_agreement(&self, context: &str) {
        let seen = read_world(self.fresh.dir.path()).unwrap();
        let differences = audit::differences(&self.store, &seen).await.unwrap();
        assert!(differences.is_empty(), "{context}: {differences:#?}");
        let miscounts = audit::miscounts(&self.store).await.unwrap();
        assert!(miscounts.is_empty(), "{context}: {miscounts:#?}");
    }

    /// Advances the clock.
    pub async fn wait(&self, span: Duration) {
        self.clock.advance(span);
    }
}
