//! `tarn serve`: puts the rooms of the house together and runs them until a signal comes.

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use tarn_control::jobs::dispatch::Dispatcher;
use tarn_control::runner::Runner;
use tarn_control::{Control, Parts, Secrets, bootstrap, reconcilers};
use tarn_driver::gpus::PATIENCE;
use tarn_model::ids::fresh_api_key;
use tarn_objects::Objects;
use tarn_server::{App, Front, Limits};
use tarn_store::{Database, Store};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::{Config, DriverName};
use crate::environment::{RandomIds, SystemClock};
use crate::failure::{Failure, Result};
use crate::{data, descriptors, logging, machines, metrics, object_storage, reconcile, secret, tls};

/// How long calls and steps under way may take after a signal.
const DRAIN: Duration = Duration::from_millis(4500);

/// Runs the cloud.
pub(crate) async fn serve(config: Config) -> Result<()> {
    logging::start(&config.log, config.log_format)?;
    descriptors::raise();
    // From here on a signal ends it in an orderly way, however early it comes.
    let signalled = signals()?;
    data::make(&config.data)?;
    let database = config.database()?;
    let alone = matches!(database, Database::Sqlite(_));
    let _lock = if alone { Some(data::lock(&config.data).await?) } else { None };
    let listen = config.listen;
    let listener = TcpListener::bind(listen).map_err(|e| Failure::listening(listen, "--listen", &e))?;
    let tls = match (&config.tls_cert, &config.tls_key) {
        (Some(cert), Some(key)) => Some(tls::load(cert, key)?),
        _ => None,
    };
    let s3 = object_storage::listen(&config)?;
    let metrics = config.metrics_listen.map(metrics::start).transpose()?;
    let store = Store::open(&database, Arc::new(SystemClock), Arc::new(RandomIds)).await;
    let store = store.map_err(|e| Failure::doing("cannot open the database", e))?;
    ensure_admin(&config, &store).await?;
    let secrets = secret::load(&config, &store).await?;
    let gateway = machines::listen_ssh(&config)?;
    let control = control(&config, store, secrets, (gateway.as_ref(), s3.as_ref())).await?;
    // Before anything is placed it has to be known which GPUs are well.
    let looked = reconcilers::gpus::tick(&control).await;
    looked.map_err(|e| Failure::doing("cannot look at the GPUs", e))?;
    let runner = Runner::new(control.clone());
    let dispatcher = Dispatcher::new(control.clone());
    // What has no time is given up as soon as somebody works on it.
    let given = reconcilers::reboots::extend_deadlines(&control).await;
    given.map_err(|e| Failure::doing("cannot find out whether the machine was restarted", e))?;
    if let Err(error) = reconcilers::reboots::recover(&control).await {
        // What could not be looked at now is looked at again every few seconds.
        tracing::warn!(cause = ?error.cause, "whether the machine was restarted could not be found out: {error}");
    }
    let recovered = async {
        runner.recover(alone).await?;
        dispatcher.recover(alone).await
    };
    recovered.await.map_err(|e| Failure::doing("cannot take up the work of before", e))?;

    let (stop, stopped) = watch::channel(false);
    let mut reconcilers = tokio::spawn(reconcile::serve(control.clone()));
    let proxies = machines::proxies(&config, &listener, s3.as_ref());
    let mut inside = tokio::spawn(tarn_server::serve_loopback_proxies(control.clone(), proxies));
    let mut runner = tokio::spawn(runner.serve(wait(stopped.clone()), DRAIN));
    let mut dispatcher = tokio::spawn(dispatcher.serve(wait(stopped.clone()), DRAIN));
    let limits = Limits { per_second: config.rate_limit.per_second, burst: config.rate_limit.burst };
    let (people, leaving) = (control.clone(), wait(stopped.clone()));
    let mut gateway = tokio::spawn(async move {
        match gateway {
            Some(listener) => tarn_server::serve_gateway(listener, people, leaving).await,
            None => leaving.await,
        }
    });
    let objects = control.objects().clone();
    let front = Front { public_url: config.public_url.clone(), tls: tls.is_some() };
    let app = App::new(control, limits, front, Arc::new(RandomIds));
    tokio::spawn(forget_idle(app.clone()));
    let waiting = app.clone();
    if let Some((listener, router)) = metrics {
        tokio::spawn(tarn_server::serve(listener, router, None, wait(stopped.clone()), DRAIN));
    }
    greet(&config, &listener, s3.as_ref());
    let s3_router = object_storage::router(&config, objects.clone());
    let mut s3 = tokio::spawn(object_storage::serve(s3, s3_router, tls.clone(), wait(stopped.clone()), DRAIN));
    let mut server = tokio::spawn(tarn_server::serve(listener, tarn_server::router(app), tls, wait(stopped), DRAIN));
    // An engine of which only half still runs would accept work and never do it.
    tokio::select! {
        () = signalled => tracing::info!("stopping"),
        ended = &mut server => return Err(Failure(format!("the server ended by itself: {ended:?}"))),
        ended = &mut s3 => return Err(Failure(format!("the S3 server ended by itself: {ended:?}"))),
        ended = &mut reconcilers => return Err(Failure(format!("the reconcilers ended by themselves: {ended:?}"))),
        ended = &mut inside => return Err(Failure(format!("the doors in the instances ended by themselves: {ended:?}"))),
        ended = &mut gateway => return Err(Failure(format!("the SSH gateway ended by itself: {ended:?}"))),
        ended = &mut runner => return Err(Failure(format!("the runner ended by itself: {ended:?}"))),
        ended = &mut dispatcher => return Err(Failure(format!("the dispatcher of jobs ended by itself: {ended:?}"))),
    }
    waiting.stop_waiting();
    let _ = stop.send(true);
    end([server, s3], &objects, [runner, dispatcher]).await
}

/// Waits for the end of what was told to stop. Whatever ends badly, the others end in order, and above all the steps of the
/// runner.
async fn end(servers: [JoinHandle<io::Result<()>>; 2], objects: &Objects, work: [JoinHandle<()>; 2]) -> Result<()> {
    let mut outcomes = Vec::new();
    for server in servers {
        let served = server.await.map_err(io::Error::other).flatten();
        outcomes.push(served.map_err(|e| Failure::doing("the server ended badly", e)));
    }
    let counted = objects.save_counts().await;
    outcomes.push(counted.map_err(|e| Failure::doing("cannot count the last requests", e)));
    for (work, what) in work.into_iter().zip(["the runner ended badly", "the dispatcher of jobs ended badly"]) {
        outcomes.push(work.await.map_err(|e| Failure::doing(what, e)));
    }
    outcomes.into_iter().collect()
}

/// Makes the first administrator. The key is on disk before it is valid, and in its place only if it became valid: replicas
/// that start at the same moment must not take each other's away.
async fn ensure_admin(config: &Config, store: &Store) -> Result<()> {
    let failed = |e| Failure::doing("cannot make the first administrator", e);
    if bootstrap::needs_admin(store).await.map_err(failed)? {
        let api_key = fresh_api_key(&RandomIds);
        let prepared = data::prepare_key(&config.data, &api_key)?;
        match bootstrap::make_admin(store, api_key).await.map_err(failed)? {
            true => data::publish(&prepared, &data::key_path(&config.data))?,
            false => drop(std::fs::remove_file(prepared)),
        }
    }
    Ok(())
}

async fn control(
    config: &Config,
    store: Store,
    secrets: Secrets,
    (gateway, s3): (Option<&TcpListener>, Option<&TcpListener>),
) -> Result<Control> {
    let watch = Arc::new(config.watch(Arc::new(SystemClock)));
    // Nothing of ours runs yet that could use one, as far as this look is concerned: it is only about which there are. One that
    // hangs must not keep the rest of the machine from working; those that the database knows are listed by the first look below.
    let looked = watch.look_within(PATIENCE, |_, _| true).await;
    let gpus = looked.inspect_err(|error| tracing::warn!(%error, "starting without the GPUs")).unwrap_or_default().seen;
    let gpus = gpus.into_iter().map(|seen| seen.gpu).collect();
    let found = config.inventory(gpus);
    let prices = config.prices()?;
    let catalogue = config.catalogue(&found, &prices)?;
    let inventory = config.overcommitted(&found);
    let driver = machines::driver(config, &inventory, watch).await?;
    let ssh = gateway.map(|listener| machines::ssh_endpoint(config, listener));
    let objects = object_storage::open(config, &store, &secrets).await?;
    let s3 = s3.map(|listener| object_storage::endpoint(config, listener)).transpose()?;
    let (settings, clock, ids) = (config.settings(), Arc::new(SystemClock), Arc::new(RandomIds));
    let parts = Parts { store, driver, inventory, catalogue, prices, settings, secrets, ssh, objects, s3, clock, ids };
    Ok(Control::new(parts))
}

/// Tells the person at the terminal how to go on.
fn greet(config: &Config, listener: &TcpListener, s3: Option<&TcpListener>) {
    let address = machines::reachable(listener.local_addr().unwrap_or(config.listen));
    let scheme = if config.tls_cert.is_some() { "https" } else { "http" };
    let url = config.public_url.clone().unwrap_or_else(|| format!("{scheme}://{address}"));
    let key = data::key_path(&std::path::absolute(&config.data).unwrap_or_else(|_| config.data.clone()));
    println!("Tarn {} is ready at {url}", env!("CARGO_PKG_VERSION"));
    if let Some(Ok(endpoint)) = s3.map(|listener| object_storage::endpoint(config, listener)) {
        println!("Object storage (S3) is at {endpoint}; `tarn object-storage enable` gives the keys.");
    }
    if config.driver == DriverName::Fake {
        println!("It runs the fake driver: clusters and volumes are made up, for trials and tests.");
    }
    if let Some(gpus) = &config.simulated_gpus {
        println!("These GPUs are simulated and do not exist: {gpus}.");
    }
    println!("\nIn another terminal:\n");
    println!("    export TENSORPOOL_ENGINE={}", url.trim_end_matches('/'));
    match key.exists() {
        true => println!("    export TENSORPOOL_KEY=$(cat '{}')", key.display()),
        false => {
            println!("    export TENSORPOOL_KEY=…   # there is no admin.key; `tarn admin key reset` makes a new one")
        }
    }
    println!("    tarn cluster create 1xCPU --wait     # or with tp, which is the same\n");
}

async fn forget_idle(app: App) {
    loop {
        tokio::time::sleep(Duration::from_secs(60)).await;
        app.forget_idle();
    }
}

async fn wait(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Listens for the signals that end it; the future is done when one has come.
fn signals() -> Result<impl Future<Output = ()>> {
    let failed = |e| Failure::doing("cannot listen for signals", e);
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
