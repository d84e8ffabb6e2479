//! The control plane as one handle: what every operation, step and reconciler works with.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tarn_driver::Driver;
use tarn_model::capacity::Inventory;
use tarn_model::catalogue::{Catalogue, Prices};
use tarn_model::limits::Limits;
use tarn_model::{Clock, Ids};
use tarn_objects::Objects;
use tarn_store::{Store, Tx};
use tokio::sync::{Notify, OnceCell};

use crate::access::Told;
use crate::board::Board;
use crate::jobs::files::upload_permits::UploadPermits;
use crate::jobs::logs::live_logs::LiveLogs;
use crate::progress::Progress;
use crate::reconcilers::access::Unreached;
use crate::reconcilers::machines::Sightings;
use crate::usage::Usage;
use crate::{Caller, Error, KeyPair, Kind, Result, Secrets, SshEndpoint, once};

/// What the composition root puts together.
pub struct Parts {
    /// Everything remembered.
    pub store: Store,
    /// What makes instances and volumes real.
    pub driver: Arc<dyn Driver>,
    /// What the driver has to give, as it was found at the start.
    pub inventory: Inventory,
    /// What can be asked for, of what was found at the start.
    pub catalogue: Catalogue,
    /// What things cost.
    pub prices: Prices,
    /// Limits and policies.
    pub settings: Settings,
    /// The keys of the cloud.
    pub secrets: Secrets,
    /// Where clients find the SSH gateway, if there is one.
    pub ssh: Option<SshEndpoint>,
    /// The buckets of organizations and what is in them.
    pub objects: Objects,
    /// The address at which clients find S3, if it is served.
    pub s3: Option<String>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub ids: Arc<dyn Ids>,
}

/// Limits and policies of the control plane.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How long the work of a request may take before it is undone.
    pub work_deadline: Duration,
    /// How long a claim may wait for capacity.
    pub capacity_deadline: Duration,
    /// How long a cluster may wait for its image, with its capacity in hand.
    pub image_pull_deadline: Duration,
    /// Where container images may come from, if not from everywhere.
    pub allowed_registries: Option<Vec<String>>,
    /// How long one try of one step may take, or be silent if it tells how far it is.
    pub step_timeout: Duration,
    /// How long a runner that died keeps others away from its requests.
    pub lease: Duration,
    /// How many requests are worked on at the same time.
    pub parallel: u32,
    /// Which clusters may have volumes.
    pub eligibility: Eligibility,
    /// How many times over the pool of volumes may be promised.
    pub storage_overcommit: f64,
    /// How many gigabytes of the pool are used at most, if not all of it.
    pub storage_cap_gb: Option<u64>,
    /// How long processes that use a volume have to leave it when it is detached.
    pub detach_grace: Duration,
    /// How often the machines are compared with the database.
    pub machines_every: Duration,
    /// What becomes of the clusters that ran when the machine was restarted.
    pub after_reboot: AfterReboot,
    /// How often the GPUs are looked at.
    pub gpus_every: Duration,
    /// How long nothing may be wrong with a GPU before it is offered again.
    pub gpu_recovery: Duration,
    /// How long an instance without a row is left alone before it is removed.
    pub orphan_grace: Duration,
    /// What organizations and users may have, unless they have limits of their own. Of objects the configuration of object
    /// storage says it.
    pub limits: Limits,
    /// Limits of jobs.
    pub jobs: JobSettings,
}

/// Limits of jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSettings {
    /// How large the archive of a job's files may be.
    pub max_upload_bytes: u64,
    /// How large its files may be together.
    pub max_unpacked_bytes: u64,
    /// How many files it may have.
    pub max_files: u64,
    /// How much of its output is kept; what comes after that is dropped, and its owner is told.
    pub max_log_bytes: u64,
    /// How large the files may be together that are kept of it.
    pub max_output_bytes: u64,
    /// How long a job waits for its files and its start before it is forgotten.
    pub draft_patience: Duration,
    /// How long it has to end when it is stopped, before it is killed.
    pub stop_grace: Duration,
    /// How long it is remembered after its end, with all that was kept of it.
    pub keep: Duration,
}

impl Default for JobSettings {
    fn default() -> Self {
        JobSettings {
            max_upload_bytes: 10 << 30,
            max_unpacked_bytes: 100 << 30,
            max_files: 1_000_000,
            max_log_bytes: 10 << 30,
            max_output_bytes: 100 << 30,
            draft_patience: Duration::from_secs(3600),
            stop_grace: Duration::from_secs(10),
            keep: Duration::from_secs(30 * 24 * 3600),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            work_deadline: Duration::from_secs(15 * 60),
            capacity_deadline: Duration::from_secs(24 * 3600),
            image_pull_deadline: Duration::from_secs(2 * 3600),
            allowed_registries: None,
            step_timeout: Duration::from_secs(120),
            lease: Duration::from_secs(10),
            parallel: 32,
            eligibility: Eligibility::Any,
            storage_overcommit: 1.0,
            storage_cap_gb: None,
            detach_grace: Duration::from_secs(10),
            machines_every: Duration::from_secs(5),
            after_reboot: AfterReboot::Start,
            gpus_every: Duration::from_secs(5),
            gpu_recovery: Duration::from_secs(30),
            orphan_grace: Duration::from_secs(60),
            limits: Limits::default(),
            jobs: JobSettings::default(),
        }
    }
}

impl Settings {
    /// How long one try of one step may really take: some have to wait for others to leave.
    pub(crate) fn step_limit(&self) -> Duration {
        self.step_timeout.saturating_add(self.detach_grace)
    }
}

/// What becomes of the clusters that ran when the machine was restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterReboot {
    /// The engine starts them again.
    #[default]
    Start,
    /// They have failed, until somebody restarts them.
    Leave,
}

/// Which clusters may have volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eligibility {
    /// All that the driver can do.
    #[default]
    Any,
    /// As the original: clusters of several nodes, and those without GPUs.
    Tensorpool,
}

/// The control plane.
#[derive(Clone)]
pub struct Control {
    parts: Arc<Parts>,
    board: Arc<Board>,
    memory: Arc<Memory>,
}

/// What this process keeps in mind, and may lose.
#[derive(Default)]
struct Memory {
    due: Notify,
    access_changed: Notify,
    restarted: Notify,
    objects_closed: Notify,
    jobs_changed: Notify,
    jobs_left: Notify,
    live_logs: LiveLogs,
    job_bucket: OnceCell<()>,
    upload_permits: UploadPermits,
    told: Told,
    unreached: Unreached,
    sightings: Sightings,
    usage: Usage,
    progress: Progress,
    gateway_public_key: OnceLock<String>,
}

impl Control {
    /// Puts the parts together.
    pub fn new(parts: Parts) -> Self {
        let board = Arc::new(Board::new(parts.inventory.clone(), parts.catalogue.clone()));
        Control { parts: Arc::new(parts), board, memory: Arc::default() }
    }

    /// Who calls with this API key.
    pub async fn authenticate(&self, token: &str) -> Result<Caller> {
        let hash = hash_of_key(token);
        let found = self.store().read(|tx| tarn_store::users::authenticate(tx, &hash)).await.map_err(Error::from)?;
        match found {
            Some((user, key)) if !user.disabled => Ok(Caller { user, key, idempotency: None }),
            Some(_) => Err(Error::new(
                Kind::Unauthenticated,
                "user_disabled",
                "this user has been disabled; ask an administrator",
            )),
            None => Err(Error::new(
                Kind::Unauthenticated,
                "invalid_key",
                "the API key is not valid; set TENSORPOOL_KEY to one that an administrator of this engine gave you",
            )),
        }
    }

    /// Counts the changes of the database and of what is known besides; `None` where others change the database unseen. All
    /// numbers only grow, so that their sum stands still as long as they all do.
    pub fn generation(&self) -> Option<u64> {
        let besides = self.usage().changes().wrapping_add(self.progress().changes());
        Some(self.store().generation()?.wrapping_add(besides))
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<()> {
        self.store().read(|tx| tarn_store::requests::line_length(tx, 1).map(drop)).await.map_err(Error::from)
    }

    /// Carries out a caller's change in one transaction, once only if the caller said so, and wakes the runner.
    pub(crate) async fn write<T, F>(&self, caller: &Caller, work: F) -> Result<T>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        F: Fn(&mut Tx<'_>) -> Result<T> + Send + 'static,
    {
        let (user, idempotency) = (caller.user.id.clone(), caller.idempotency.clone());
        let result = self.store().write(move |tx| match &idempotency {
            Some(idempotency) => once::only(tx, &user, idempotency, &work),
            None => work(tx),
        });
        let result = result.await;
        self.due().notify_one();
        result
    }

    /// The key by which clients recognise the SSH gateway.
    pub fn gateway_host_key(&self) -> KeyPair {
        self.secrets().gateway_host_key()
    }

    /// The public half of it, as one line. It is part of many answers, so it is made once.
    pub(crate) fn gateway_public_key(&self) -> &str {
        self.memory.gateway_public_key.get_or_init(|| self.gateway_host_key().public_key)
    }

    pub(crate) fn secrets(&self) -> &Secrets {
        &self.parts.secrets
    }

    pub(crate) fn ssh(&self) -> Option<&SshEndpoint> {
        self.parts.ssh.as_ref()
    }

    /// Object storage, for what serves its protocol.
    pub fn objects(&self) -> &Objects {
        &self.parts.objects
    }

    pub(crate) fn s3(&self) -> Option<&str> {
        self.parts.s3.as_deref()
    }

    pub(crate) fn store(&self) -> &Store {
        &self.parts.store
    }

    pub(crate) fn driver(&self) -> &dyn Driver {
        &*self.parts.driver
    }

    /// What is known of the machine at this moment.
    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    pub(crate) fn inventory(&self) -> Arc<Inventory> {
        self.board.inventory()
    }

    pub(crate) fn catalogue(&self) -> Arc<Catalogue> {
        self.board.catalogue()
    }

    pub(crate) fn prices(&self) -> &Prices {
        &self.parts.prices
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.parts.settings
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.parts.clock
    }

    pub(crate) fn ids(&self) -> &dyn Ids {
        &*self.parts.ids
    }

    /// Rings when something may have become due.
    pub(crate) fn due(&self) -> &Notify {
        &self.memory.due
    }

    /// Rings when running instances may have to be told other keys.
    pub(crate) fn access_changed(&self) -> &Notify {
        &self.memory.access_changed
    }

    /// Rings when a restart of a cluster has ended, whoever asked for it.
    pub(crate) fn restarted(&self) -> &Notify {
        &self.memory.restarted
    }

    /// Rings when object storage was given up and has to be emptied.
    pub(crate) fn objects_closed(&self) -> &Notify {
        &self.memory.objects_closed
    }

    /// Rings when it may be the turn of a job, or when one has to be stopped, torn down after or removed.
    pub(crate) fn jobs_changed(&self) -> &Notify {
        &self.memory.jobs_changed
    }

    /// Rings after that, when jobs may have left something to be tidied up.
    pub(crate) fn jobs_left(&self) -> &Notify {
        &self.memory.jobs_left
    }

    /// What jobs wrote a moment ago, for those who listen.
    pub(crate) fn live_logs(&self) -> &LiveLogs {
        &self.memory.live_logs
    }

    /// Whether the bucket is there in which things of jobs are kept.
    pub(crate) fn job_bucket(&self) -> &OnceCell<()> {
        &self.memory.job_bucket
    }

    /// Turns of those who send the files of a job.
    pub(crate) fn upload_permits(&self) -> &UploadPermits {
        &self.memory.upload_permits
    }

    pub(crate) fn told(&self) -> &Told {
        &self.memory.told
    }

    pub(crate) fn unreached(&self) -> &Unreached {
        &self.memory.unreached
    }

    pub(crate) fn usage(&self) -> &Usage {
        &self.memory.usage
    }

    /// How far the steps are that tell it.
    pub(crate) fn progress(&self) -> &Progress {
        &self.memory.progress
    }

    pub(crate) fn sightings(&self) -> &Sightings {
        &self.memory.sightings
    }
}

/// What is kept of an API key. Keys have about 200 random bits, so a plain fast hash is enough.
pub fn hash_of_key(token: &str) -> [u8; 32] {
    *blake3::hash(token.as_bytes()).as_bytes()
}
