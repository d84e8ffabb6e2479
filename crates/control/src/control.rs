//! The control plane as one handle, which every operation, step and reconciler uses.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tarn_driver::Driver;
use tarn_model::capacity::Inventory;
use tarn_model::catalogue::{Catalogue, Prices};
use tarn_model::events::Event;
use tarn_model::users::User;
use tarn_model::{Clock, Ids};
use tarn_objects::Objects;
use tarn_store::{Store, Tx};
use tokio::sync::{Notify, OnceCell};

use crate::calls::held_access::HeldCallers;
use crate::calls::idempotency;
use crate::in_memory::host_view::HostView;
use crate::in_memory::key_usage::KeyUsage;
use crate::in_memory::pushed_access::PushedAccess;
use crate::in_memory::recent_shows::RecentShows;
use crate::in_memory::refused_logins::{RefusedLogins, Via};
use crate::in_memory::step_progress::StepProgress;
use crate::in_memory::volume_usage::VolumeUsage;
use crate::jobs::files::job_space::ArrivingBytes;
use crate::jobs::files::upload_permits::UploadPermits;
use crate::jobs::logs::live_logs::LiveLogs;
use crate::jobs::logs::recent_blocks::RecentBlocks;
use crate::operations::gateway::HeldLogins;
use crate::reconcilers::access::UnreachableInstances;
use crate::reconcilers::expiry::LastKey;
use crate::reconcilers::instances::UnknownResources;
use crate::{Caller, Error, KeyPair, Kind, Result, Secrets, Settings, SshEndpoint};

/// What the composition root assembles.
pub struct Parts {
    pub store: Store,
    /// Creates and removes instances and volumes.
    pub driver: Arc<dyn Driver>,
    /// What the host has, as observed when the engine started.
    pub inventory: Inventory,
    /// The instance types that the observed host can provide.
    pub catalogue: Catalogue,
    pub prices: Prices,
    pub settings: Settings,
    /// The master key and the keys derived from it.
    pub secrets: Secrets,
    /// Where clients reach the SSH gateway, if there is one.
    pub ssh: Option<SshEndpoint>,
    /// Object storage.
    pub objects: Objects,
    /// The address at which clients reach S3, if it is served.
    pub s3: Option<String>,
    pub clock: Arc<dyn Clock>,
    /// The source of random ids.
    pub ids: Arc<dyn Ids>,
}

/// The control plane.
#[derive(Clone)]
pub struct Control {
    parts: Arc<Parts>,
    host_view: Arc<HostView>,
    pub(crate) memory: Arc<Memory>,
}

/// State that this process may lose.
#[derive(Default)]
pub(crate) struct Memory {
    /// Notified when a request may have become due.
    pub(crate) due: Notify,
    /// Notified when the keys in running instances may have to change.
    pub(crate) access_changed: Notify,
    /// Notified when the access of users may have ended.
    pub(crate) access_ended: Notify,
    /// What callers have open.
    pub(crate) held_callers: Arc<HeldCallers>,
    /// The open SSH sessions.
    pub(crate) held_logins: Arc<HeldLogins>,
    pub(crate) key_usage: KeyUsage,
    pub(crate) refused_logins: RefusedLogins,
    /// Notified when the restart of a cluster has ended.
    pub(crate) restarted: Notify,
    /// Notified when object storage was disabled and has to be emptied.
    pub(crate) objects_closed: Notify,
    /// Notified when a job may be started, or has to be stopped, torn down or removed.
    pub(crate) jobs_changed: Notify,
    /// Notified after that, when jobs may have left something to clean up.
    pub(crate) jobs_left: Notify,
    /// What jobs wrote most recently, for clients that follow a log.
    pub(crate) live_logs: LiveLogs,
    /// What followers of logs read from the database a moment ago.
    pub(crate) recent_blocks: RecentBlocks,
    /// Set once the bucket exists in which the files of jobs are stored.
    pub(crate) job_bucket: OnceCell<()>,
    /// Permits for clients that upload the files of a job.
    pub(crate) upload_permits: UploadPermits,
    /// What is arriving for jobs and not stored yet.
    pub(crate) arriving_job_bytes: ArrivingBytes,
    /// The secrets that were shown a moment ago.
    pub(crate) recent_shows: RecentShows,
    pub(crate) pushed_access: PushedAccess,
    pub(crate) unreachable_instances: UnreachableInstances,
    pub(crate) unknown_resources: UnknownResources,
    pub(crate) last_key: LastKey,
    pub(crate) volume_usage: VolumeUsage,
    /// The progress of the steps that report it.
    pub(crate) step_progress: StepProgress,
    gateway_public_key: OnceLock<String>,
}

impl Control {
    /// Assembles the control plane.
    pub fn new(parts: Parts) -> Self {
        let host_view = Arc::new(HostView::new(parts.inventory.clone(), parts.catalogue.clone()));
        Control { parts: Arc::new(parts), host_view, memory: Arc::default() }
    }

    /// Returns the caller that an API key belongs to.
    pub async fn authenticate(&self, token: &str) -> Result<Caller> {
        self.authenticate_from(token, None).await
    }

    /// Returns the caller that an API key belongs to. The use of the key and a refusal are recorded.
    pub async fn authenticate_from(&self, token: &str, address: Option<IpAddr>) -> Result<Caller> {
        let hash = hash_of_key(token);
        let found = self.store().read(|tx| tarn_store::users::authenticate(tx, &hash)).await.map_err(Error::from)?;
        match found {
            Some((user, key)) if !user.disabled => {
                self.memory.key_usage.record(&key, self.clock().now());
                let policy = self.settings().access;
                Ok(Caller { user, key, policy, idempotency: None, address, call: None })
            }
            Some((user, _)) => Err(self.refuse_login(Error::user_disabled(), address, Some(&user))),
            None => Err(self.refuse_login(Error::invalid_key(), address, None)),
        }
    }

    fn refuse_login(&self, refusal: Error, address: Option<IpAddr>, user: Option<&User>) -> Error {
        self.memory.refused_logins.count(Via::Api, refusal.code, address, user);
        refusal
    }

    /// Counts a call to S3 whose key or signature was refused.
    pub fn count_refused_s3_call(&self, reason: &'static str, address: Option<IpAddr>) {
        self.memory.refused_logins.count(Via::S3, reason, address, None);
    }

    /// Counts the changes to the database and to the state in memory; `None` where other processes change the database.
    /// All counters only grow, so their sum stays the same only while none of them changes.
    pub fn generation(&self) -> Option<u64> {
        let in_memory = self.memory.volume_usage.changes().wrapping_add(self.memory.step_progress.changes());
        Some(self.store().generation()?.wrapping_add(in_memory))
    }

    /// Informs what watches access that some may have changed or ended.
    pub(crate) fn notify_access_changed(&self) {
        self.memory.access_changed.notify_one();
        self.memory.access_ended.notify_one();
    }

    /// Returns an error while the database does not respond.
    pub async fn ping(&self) -> Result<()> {
        self.store().ping().await.map_err(Error::from)
    }

    /// Carries out the change of a caller in one transaction, at most once if the caller sent an idempotency key, and
    /// wakes the runner. The transaction refuses a caller whose access has ended meanwhile. The change may end the
    /// access of others, so S3 looks up keys again.
    pub(crate) async fn write<T, F>(&self, caller: &Caller, work: F) -> Result<T>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        F: Fn(&mut Tx<'_>) -> Result<T> + Send + 'static,
    {
        let caller = caller.clone();
        let result = self.store().write(move |tx| {
            caller.must_still_hold(tx)?;
            tx.set_origin(caller.origin());
            match &caller.idempotency {
                Some(key) => idempotency::run_once(tx, &caller.user.owner(), key, &work),
                None => work(tx),
            }
        });
        let result = result.await;
        self.objects().forget_keys();
        self.memory.due.notify_one();
        result
    }

    /// Records that something secret was shown to a caller, and refuses a caller whose access has ended. The same is
    /// recorded once a minute. A database that cannot be written must not lock callers out; the log keeps the record.
    pub(crate) async fn record_shown(&self, caller: &Caller, scope: &str, event: Event) -> Result<()> {
        let verb = event.verb();
        if !self.memory.recent_shows.is_due(&caller.key, verb, event.object(), self.clock().now()) {
            return self.store().read(|tx| caller.must_still_hold(tx)).await;
        }
        let (scope, logged) = (scope.to_owned(), event.data());
        let plain = Caller { idempotency: None, ..caller.clone() };
        let write = self.write(&plain, move |tx| Ok(tx.record(&scope, event.clone())?));
        match write.await {
            Err(error) if error.kind != Kind::Unauthenticated => {
                let (user, key) = (&caller.user.id, &caller.key);
                tracing::error!(%error, cause = ?error.cause, %user, %key, verb, detail = %logged, "not recorded");
                Ok(())
            }
            written => written,
        }
    }

    /// Returns the host key of the SSH gateway.
    pub fn gateway_host_key(&self) -> KeyPair {
        self.secrets().gateway_host_key()
    }

    /// The public half of the host key, as one line. It is part of many responses, so it is derived once.
    pub(crate) fn gateway_public_key(&self) -> &str {
        self.memory.gateway_public_key.get_or_init(|| self.gateway_host_key().public_key)
    }

    pub(crate) fn secrets(&self) -> &Secrets {
        &self.parts.secrets
    }

    pub(crate) fn ssh(&self) -> Option<&SshEndpoint> {
        self.parts.ssh.as_ref()
    }

    /// Object storage, for the server of its protocol.
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

    /// What is known about the host at this moment.
    pub(crate) fn host_view(&self) -> &HostView {
        &self.host_view
    }

    pub(crate) fn inventory(&self) -> Arc<Inventory> {
        self.host_view.inventory()
    }

    pub(crate) fn catalogue(&self) -> Arc<Catalogue> {
        self.host_view.catalogue()
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
}

/// The hash of an API key, which is what is stored. Keys have about 200 random bits, so a plain fast hash is enough.
pub fn hash_of_key(token: &str) -> [u8; 32] {
    *blake3::hash(token.as_bytes()).as_bytes()
}
