//! `tarn serve`: builds the engine from its parts and runs it until a signal arrives. Start reading at [`run_engine`].

pub(crate) mod check;
mod descriptors;
pub(crate) mod driver;
mod guest;
pub(crate) mod listeners;
mod logging;
mod memory;
mod metrics;
mod notify;
mod object_storage;
mod plain_http;
mod process;
mod reconciler_loops;
pub(crate) mod tls;

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use tarn_control::jobs::dispatch::Dispatcher;
use tarn_control::runner::Runner;
use tarn_control::{Control, Parts, Secrets, Settings, bootstrap, reconcilers};
use tarn_driver::gpus::LOOK_TIMEOUT;
use tarn_model::access::Policy;
use tarn_model::ids::fresh_api_key;
use tarn_objects::Objects;
use tarn_server::{App, Front, Limits, Listening, RefusalForm};
use tarn_store::{Database, Store, installation};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::{Config, DriverName};
use crate::data::{self, master_key};
use crate::environment::{EngineClock, RandomIds};
use crate::failure::{Failure, Result};

/// How long calls and steps in progress may take after a signal.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(4500);

/// How long the parts of the engine may take to stop, and after that the tasks that are left. Together with
/// [`process::LAST_MOMENT`], which ends the program in any case, this keeps the promise of ten seconds.
const STOP_TIMEOUT: Duration = Duration::from_secs(7);
pub(crate) const TASKS_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the engine.
pub(crate) async fn run_engine(config: Config) -> Result<()> {
    logging::start_logging(&config.log, config.log_format)?;
    descriptors::raise_descriptor_limit();
    process::keep_memory_private();
    // From here on a signal leads to an orderly shutdown, which has a limited time.
    let signalled = stop_signals()?;
    process::end_after_signal()?;
    notify::start_watchdog();
    notify::status("starting");
    plain_http::check_new_installation(&config)?;
    data::create_directory(&config.data)?;
    let database = config.database()?;
    let is_only_engine = matches!(database, Database::Sqlite(_));
    let _lock = if is_only_engine { Some(data::lock_directory(&config.data).await?) } else { None };
    let listen = config.listen;
    let listener = TcpListener::bind(listen).map_err(|e| Failure::cannot_listen(listen, "--listen", &e))?;
    let tls = match (&config.tls_cert, &config.tls_key) {
        (Some(cert), Some(key)) => Some(tls::start_tls(cert, key)?),
        _ => None,
    };
    let s3 = object_storage::listen_s3(&config)?;
    let metrics = config.metrics_listen.map(metrics::start_metrics).transpose()?;
    let clock = Arc::new(EngineClock::new());
    let store = Store::open(&database, clock.clone(), Arc::new(RandomIds)).await;
    let store = store.map_err(|e| Failure::with_cause("cannot open the database", e))?;
    let resumed = reconcilers::clock::resume(&store, clock.clone()).await;
    let clock_watch = resumed.map_err(|e| Failure::with_cause("cannot continue the time of the previous run", e))?;
    plain_http::check_installation(&config, &store).await?;
    ensure_administrator(&config, &store).await?;
    log_changed_defaults(&config, &store).await?;
    let secrets = master_key::load_or_create(&config, &store).await?;
    let gateway = listeners::listen_ssh(&config)?;
    let control = build_control(&config, store, clock, secrets, (gateway.as_ref(), s3.as_ref())).await?;
    // The health of the GPUs must be known before anything is placed.
    let ticked = reconcilers::gpus::tick(&control).await;
    ticked.map_err(|e| Failure::with_cause("cannot check the GPUs", e))?;
    let runner = Runner::new(control.clone());
    let dispatcher = Dispatcher::new(control.clone());
    // Requests without a deadline would fail as soon as the runner takes them.
    let given = reconcilers::reboots::extend_deadlines(&control).await;
    given.map_err(|e| Failure::with_cause("cannot determine whether the host was restarted", e))?;
    if let Err(error) = reconcilers::reboots::recover(&control).await {
        // The reconciler tries again every few seconds.
        tracing::warn!(cause = ?error.cause, "cannot determine whether the host was restarted: {error}");
    }
    let recovered = async {
        runner.recover(is_only_engine).await?;
        dispatcher.recover(is_only_engine).await
    };
    recovered.await.map_err(|e| Failure::with_cause("cannot resume the requests and jobs of the previous run", e))?;

    let (stop, stopped) = watch::channel(false);
    let mut reconcilers = tokio::spawn(reconciler_loops::run_reconcilers(control.clone(), clock_watch));
    let (proxies, to_api, to_s3) = listeners::loopback_proxies(&config, &listener, s3.as_ref());
    let mut proxies = tokio::spawn(tarn_server::serve_loopback_proxies(control.clone(), proxies));
    let mut runner = tokio::spawn(runner.serve(wait_until_stopped(stopped.clone()), DRAIN_TIMEOUT));
    let mut dispatcher = tokio::spawn(dispatcher.serve(wait_until_stopped(stopped.clone()), DRAIN_TIMEOUT));
    let limits = Limits { per_second: config.rate_limit.per_second, burst: config.rate_limit.burst };
    let (gateway_control, gateway_stop) = (control.clone(), wait_until_stopped(stopped.clone()));
    let mut gateway = tokio::spawn(async move {
        match gateway {
            Some(listener) => tarn_server::serve_gateway(listener, gateway_control, gateway_stop).await,
            None => gateway_stop.await,
        }
    });
    let (objects, recorded) = (control.objects().clone(), control.clone());
    let front = Front { public_url: config.public_url.clone(), tls: tls.is_some() };
    let app = App::new(control, limits, front, Arc::new(RandomIds));
    tokio::spawn(forget_idle_callers(app.clone()));
    tokio::spawn(memory::return_freed_memory());
    let waiting = app.clone();
    if let Some((listener, router)) = metrics {
        tokio::spawn(tarn_server::serve(
            listener,
            router,
            Listening::default(),
            wait_until_stopped(stopped.clone()),
            DRAIN_TIMEOUT,
        ));
    }
    if let Some(limit) = config.settings().limits.waiting() {
        tracing::info!(limit, "further clusters of an organization are refused while this many wait for capacity");
    }
    print_welcome(&config, &listener, s3.as_ref());
    let listening = |from_instances, refusals| Listening {
        tls: tls.clone(),
        trusted_proxies: config.trusted_proxies.iter().copied().collect(),
        from_instances,
        refusals,
    };
    let s3_router = object_storage::s3_router(&config, objects.clone());
    let mut s3 = tokio::spawn(object_storage::serve_s3(
        s3,
        s3_router,
        listening(to_s3, RefusalForm::S3),
        wait_until_stopped(stopped.clone()),
        DRAIN_TIMEOUT,
    ));
    let mut server = tokio::spawn(tarn_server::serve(
        listener,
        tarn_server::router(app),
        listening(to_api, RefusalForm::Json),
        wait_until_stopped(stopped),
        DRAIN_TIMEOUT,
    ));
    notify::ready("serving");
    // An engine with a stopped part would accept work and never do it.
    tokio::select! {
        () = signalled => tracing::info!("stopping"),
        ended = &mut server => return Err(Failure(format!("the API server stopped unexpectedly: {ended:?}"))),
        ended = &mut s3 => return Err(Failure(format!("the S3 server stopped unexpectedly: {ended:?}"))),
        ended = &mut reconcilers => return Err(Failure(format!("the reconcilers stopped unexpectedly: {ended:?}"))),
        ended = &mut proxies => return Err(Failure(format!("the loopback proxies stopped unexpectedly: {ended:?}"))),
        ended = &mut gateway => return Err(Failure(format!("the SSH gateway stopped unexpectedly: {ended:?}"))),
        ended = &mut runner => return Err(Failure(format!("the runner stopped unexpectedly: {ended:?}"))),
        ended = &mut dispatcher => return Err(Failure(format!("the job dispatcher stopped unexpectedly: {ended:?}"))),
    }
    notify::stopping();
    waiting.stop_waiting();
    let _ = stop.send(true);
    let stopping = async {
        let outcome = shut_down([server, s3], &objects, [runner, dispatcher]).await;
        if let Err(error) = reconcilers::access_records::store(&recorded).await {
            tracing::warn!(%error, "the last uses of API keys and refused logins could not be stored");
        }
        outcome
    };
    let stopped = tokio::time::timeout(STOP_TIMEOUT, stopping).await;
    stopped.unwrap_or_else(|_| Err(Failure("a part of the engine did not stop in time; the program ends".to_owned())))
}

/// Waits until all parts have stopped. If one fails, the others still stop in order, above all the steps of the runner.
async fn shut_down(
    servers: [JoinHandle<io::Result<()>>; 2],
    objects: &Objects,
    work: [JoinHandle<()>; 2],
) -> Result<()> {
    let mut outcomes = Vec::new();
    for server in servers {
        let served = server.await.map_err(io::Error::other).flatten();
        outcomes.push(served.map_err(|e| Failure::with_cause("a server stopped with an error", e)));
    }
    let counted = objects.save_counts().await;
    outcomes.push(counted.map_err(|e| Failure::with_cause("cannot save the last S3 call counts", e)));
    for (work, what) in
        work.into_iter().zip(["the runner stopped with an error", "the job dispatcher stopped with an error"])
    {
        outcomes.push(work.await.map_err(|e| Failure::with_cause(what, e)));
    }
    outcomes.into_iter().collect()
}

/// Creates the first administrator. The key is on disk before it is valid, and in its final place only if it became
/// valid, so that replicas that start at the same moment do not overwrite each other's key.
async fn ensure_administrator(config: &Config, store: &Store) -> Result<()> {
    let failed = |e| Failure::with_cause("cannot create the first administrator", e);
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
async fn log_changed_defaults(config: &Config, store: &Store) -> Result<()> {
    let is_older = store.read(installation::keeps_permissive_defaults).await;
    if is_older.map_err(|e| Failure::with_cause("cannot read the database", e))? && config.has_default_output_url() {
        tracing::info!(
            "URLs of the outputs of jobs are valid for an hour (earlier: 7 days); see jobs.output_url_minutes"
        );
    }
    Ok(())
}

async fn build_control(
    config: &Config,
    store: Store,
    clock: Arc<EngineClock>,
    secrets: Secrets,
    (gateway, s3): (Option<&TcpListener>, Option<&TcpListener>),
) -> Result<Control> {
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
async fn access_policy(config: &Config, store: &Store) -> Result<Policy> {
    let older = store.read(installation::keeps_permissive_defaults).await;
    let older = older.map_err(|e| Failure::with_cause("cannot read the age of the installation", e))?;
    let (policy, warning) = config.organization.policy(older);
    if let Some(warning) = warning {
        tracing::warn!("{warning}");
    }
    Ok(policy)
}

/// Prints how to use the engine.
fn print_welcome(config: &Config, listener: &TcpListener, s3: Option<&TcpListener>) {
    let address = listeners::reachable_address(listener.local_addr().unwrap_or(config.listen));
    let scheme = if config.tls_cert.is_some() { "https" } else { "http" };
    let url = config.public_url.clone().unwrap_or_else(|| format!("{scheme}://{address}"));
    let key = data::admin_key_path(&std::path::absolute(&config.data).unwrap_or_else(|_| config.data.clone()));
    println!("Tarn {} is ready at {url}", env!("CARGO_PKG_VERSION"));
    if let Some(Ok(endpoint)) = s3.map(|listener| object_storage::s3_endpoint(config, listener)) {
        println!("Object storage (S3) is at {endpoint}; get keys with `tarn object-storage enable`.");
    }
    if config.driver == DriverName::Fake {
        println!("It uses the fake driver: clusters and volumes are not real, for trials and tests.");
    }
    if let Some(gpus) = &config.simulated_gpus {
        println!("These GPUs are simulated and do not exist: {gpus}.");
    }
    println!("\nIn another terminal:\n");
    println!("    export TENSORPOOL_ENGINE={}", url.trim_end_matches('/'));
    if key.exists() {
        println!("    export TENSORPOOL_KEY=$(cat '{}')", key.display())
    } else {
        println!("    export TENSORPOOL_KEY=…   # there is no admin.key; create a new key with `tarn admin key reset`")
    }
    println!("    tarn cluster create 1xCPU --wait     # or with tp\n");
}

async fn forget_idle_callers(app: App) {
    loop {
        tokio::time::sleep(Duration::from_secs(60)).await;
        app.forget_idle();
    }
}

async fn wait_until_stopped(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Catches SIGTERM and SIGINT; the future completes when one has arrived.
fn stop_signals() -> Result<impl Future<Output = ()>> {
    let failed = |e| Failure::with_cause("cannot catch signals", e);
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
