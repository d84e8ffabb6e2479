//! Opens everything that the engine needs before it can serve a call. It may be tried again: a database that is not
//! available, or a full disk, is waited for ([`super::waiting`]).

use std::cell::Cell;
use std::fs::File;
use std::net::TcpListener;
use std::sync::Arc;

use tarn_control::reconcilers::clock::{self, ClockWatch};
use tarn_control::{Control, Parts, Secrets, Settings, audit, bootstrap};
use tarn_driver::gpus::LOOK_TIMEOUT;
use tarn_model::access::Policy;
use tarn_model::ids::fresh_api_key;
use tarn_store::{Database, Store, installation};

use super::host_binding::Bound;
use super::{driver, host_binding, plain_http};
use crate::config::{Config, DriverName};
use crate::data::{self, master_key, reserve};
use crate::environment::{EngineClock, RandomIds};
use crate::failure::{Result, StartFailure, StartResult};
use crate::serve::database_cost;
use crate::serve::listeners::{self, Listeners, object_storage};

/// An engine that can serve calls.
pub(in crate::serve) struct Opened {
    pub(in crate::serve) control: Control,
    pub(in crate::serve) clock_watch: ClockWatch,
    /// The binding of the database, if it needs one.
    pub(in crate::serve) bound: Option<Bound>,
    /// The lock of the data directory.
    pub(in crate::serve) lock: DataLock,
}

/// The lock of the data directory; none with the fake driver on PostgreSQL, whose world replicas share.
pub(in crate::serve) struct DataLock(#[allow(dead_code, reason = "the lock lives as long as its file")] Option<File>);

/// What is being opened, for whatever watches how long it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) enum Stage {
    Directory,
    Database,
    Rest,
}

/// Locks the data directory before anything is listened on. Returns `None` if the disk is too full for that.
pub(in crate::serve) async fn lock_data_unless_full(config: &Config) -> Result<Option<DataLock>> {
    match lock_data(config).await {
        Err(_) if reserve::is_full(&config.data) => Ok(None),
        locked => locked.map(Some),
    }
}

async fn lock_data(config: &Config) -> Result<DataLock> {
    data::create_directory(&config.data)?;
    let is_alone = matches!(config.database()?, Database::Sqlite(_)) || config.driver == DriverName::Local;
    Ok(DataLock(if is_alone { Some(data::lock_directory(&config.data).await?) } else { None }))
}

/// Opens the engine. `lock` is taken from the caller when everything is open; if it is missing, it is obtained first.
pub(in crate::serve) async fn open_engine(
    config: &Config,
    listeners: &Listeners,
    lock: &mut Option<DataLock>,
    stage: &Cell<Stage>,
) -> StartResult<Opened> {
    stage.set(Stage::Directory);
    if lock.is_none() {
        *lock = Some(lock_data(config).await?);
    }
    stage.set(Stage::Database);
    host_binding::check(config).await?;
    let engine_clock = Arc::new(EngineClock::new());
    let store = Store::open(&config.database()?, engine_clock.clone(), Arc::new(RandomIds)).await;
    let store = store.map_err(|e| StartFailure::with_cause("cannot open the database", e))?;
    let resumed = clock::resume(&store, engine_clock.clone()).await;
    let clock_watch =
        resumed.map_err(|e| StartFailure::with_cause("cannot continue the time of the previous run", e))?;
    plain_http::check_installation(config, &store).await?;
    ensure_administrator(config, &store).await?;
    log_changed_defaults(config, &store).await?;
    let secrets = master_key::load_or_create(config, &store).await?;
    let bound = host_binding::bind(config, &store).await?;
    stage.set(Stage::Rest);
    let (checked, counted) = (store.clone(), store.clone());
    let control =
        build_control(config, store, engine_clock, secrets, (listeners.gateway.as_ref(), listeners.s3.as_ref()))
            .await?;
    tokio::spawn(correct_counts(checked));
    if config.metrics_listen.is_some() {
        tokio::spawn(database_cost::count_statements(counted));
    }
    Ok(Opened { control, clock_watch, bound, lock: lock.take().unwrap_or(DataLock(None)) })
}

/// Creates the first administrator. The key is on disk before it is valid, and in its final place only if it became
/// valid, so that replicas that start at the same moment do not overwrite each other's key.
async fn ensure_administrator(config: &Config, store: &Store) -> StartResult<()> {
    let failed = |e| StartFailure::with_cause("cannot create the first administrator", e);
    if bootstrap::needs_admin(store).await.map_err(failed)? {
        let api_key = fresh_api_key(&RandomIds);
        let prepared = data::prepare_admin_key(&config.data, &api_key)?;
        if bootstrap::make_admin(store, api_key).await.map_err(failed)? {
            data::publish_secret(&prepared, &data::admin_key_path(&config.data))?
        } else {
            drop(std::fs::remove_file(prepared))
        }
    }
    Ok(())
}

/// Tells the operator of an older installation which defaults have become stricter.
async fn log_changed_defaults(config: &Config, store: &Store) -> StartResult<()> {
    let is_older = store.read(installation::keeps_permissive_defaults).await;
    if is_older.map_err(|e| StartFailure::with_cause("cannot read the database", e))? && config.has_default_output_url()
    {
        tracing::info!(
            "URLs of the outputs of jobs are valid for an hour (earlier: 7 days); see jobs.output_url_minutes"
        );
    }
    Ok(())
}

/// Corrects counts that differ from what exists: a program that does not know them wrote to the database. Nothing waits
/// for it, because it reads everything that is counted.
async fn correct_counts(store: Store) {
    let corrected = async {
        // Reading does not keep other replicas from writing.
        if audit::miscounts(&store).await?.is_empty() { Ok(Vec::new()) } else { audit::correct_miscounts(&store).await }
    };
    match corrected.await {
        Ok(corrected) => corrected.iter().for_each(|miscount| {
            tracing::error!(%miscount, "counts in the database were wrong and are corrected");
        }),
        Err(error) => tracing::warn!(%error, "cannot compare the counts in the database with its rows"),
    }
}

async fn build_control(
    config: &Config,
    store: Store,
    clock: Arc<EngineClock>,
    secrets: Secrets,
    (gateway, s3): (Option<&TcpListener>, Option<&TcpListener>),
) -> StartResult<Control> {
    let watch = Arc::new(config.watch(clock.clone()));
    // This observation only lists the GPUs; no instance is assumed to use one. A GPU that hangs must not keep the
    // engine from starting; the GPUs that the database knows are listed by the first tick of the reconciler.
    let looked = watch.look_within(LOOK_TIMEOUT, |_, _| true).await;
    let gpus = looked
        .inspect_err(|error| tracing::warn!(%error, "starting without GPUs, because they cannot be listed"))
        .unwrap_or_default()
        .seen;
    let gpus = gpus.into_iter().map(|seen| seen.gpu).collect();
    let found = config.inventory(gpus);
    let prices = config.prices()?;
    let catalogue = config.catalogue(&found, &prices)?;
    let inventory = config.overcommitted(&found);
    let policy = driver::network_policy(config, &store).await?;
    let driver = driver::open_driver(config, policy, &inventory, watch).await?;
    let ssh = gateway.map(|listener| listeners::ssh_endpoint(config, listener));
    let access = access_policy(config, &store).await?;
    let objects = object_storage::open_objects(config, &store, clock.clone(), &secrets, access).await?;
    let s3 = s3.map(|listener| object_storage::s3_endpoint(config, listener)).transpose()?;
    let mut settings = Settings { access, ..config.settings() };
    let ids = Arc::new(RandomIds);
    if settings.limits.job_bytes.is_none() {
        settings.limits.job_bytes = Some(object_storage::default_job_bytes(&objects)?);
    }
    let parts = Parts { store, driver, inventory, catalogue, prices, settings, secrets, ssh, objects, s3, clock, ids };
    Ok(Control::new(parts))
}

/// What members of an organization may do to each other. An older installation that keeps more than a new one has is
/// named in the log.
async fn access_policy(config: &Config, store: &Store) -> StartResult<Policy> {
    let older = store.read(installation::keeps_permissive_defaults).await;
    let older = older.map_err(|e| StartFailure::with_cause("cannot read the age of the installation", e))?;
    let (policy, warning) = config.organization.policy(older);
    if let Some(warning) = warning {
        tracing::warn!("{warning}");
    }
    Ok(policy)
}
