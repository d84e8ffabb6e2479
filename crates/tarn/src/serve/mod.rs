//! `tarn serve`: builds the engine from its parts and runs it until a signal arrives. Start reading at [`run_engine`].

mod database_cost;
mod last_backup;
pub(crate) mod listeners;
mod process;
mod reconciler_loops;
pub(crate) mod startup;
mod work;

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tarn_control::reconcilers;
use tarn_objects::Objects;
use tarn_server::{App, Front, Limits, RefusalForm};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::{Config, DriverName};
use crate::data;
use crate::environment::RandomIds;
use crate::failure::{Failure, Result};
use listeners::{Listeners, metrics, object_storage};
use process::{descriptors, logging, memory, notify};
use startup::opening::{self, Opened};
use startup::{host_binding, plain_http, waiting};
use work::Workers;

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
    let mut signalled = pin!(stop_signals()?);
    process::end_after_signal(process::LAST_MOMENT)?;
    notify::start_watchdog();
    notify::status("starting");
    plain_http::check_new_installation(&config)?;
    let lock = opening::lock_data_unless_full(&config).await?;
    let listeners = Listeners::open(&config)?;
    let (stop, stopped) = watch::channel(false);
    if let Some(metrics) = config.metrics_listen {
        let (listener, router) = metrics::start_metrics(metrics, config.data.clone())?;
        let stopped = wait_until_stopped(stopped.clone());
        tokio::spawn(tarn_server::serve(listener, router, Default::default(), stopped, DRAIN_TIMEOUT));
    }
    let opened = waiting::open_when_possible(&config, &listeners, lock, signalled.as_mut()).await?;
    let Some(Opened { control, clock_watch, bound, lock: _lock }) = opened else { return Ok(()) };

    let (per_second, burst) = (config.rate_limit.per_second, config.rate_limit.burst);
    let limits = Limits { per_second, burst, ..Limits::default() };
    let front = Front { public_url: config.public_url.clone(), tls: listeners.tls.is_some() };
    let app = App::new(control.clone(), limits, front, Arc::new(RandomIds));
    let mut workers = Workers::start(&config, &control, clock_watch, app.clone(), &stopped).await?;
    let (proxies, to_api, to_s3) = listeners::loopback_proxies(&config, &listeners.api, listeners.s3.as_ref());
    let mut proxies = tokio::spawn(tarn_server::serve_loopback_proxies(control.clone(), proxies));
    let listening =
        [listeners.listening(&config, to_api, RefusalForm::Json), listeners.listening(&config, to_s3, RefusalForm::S3)];
    let Listeners { api, s3, gateway, .. } = listeners;
    let (gateway_control, gateway_stop) = (control.clone(), wait_until_stopped(stopped.clone()));
    let mut gateway = tokio::spawn(async move {
        match gateway {
            Some(listener) => tarn_server::serve_gateway(listener, gateway_control, gateway_stop).await,
            None => gateway_stop.await,
        }
    });
    tokio::spawn(forget_idle_callers(app.clone()));
    tokio::spawn(memory::return_freed_memory());
    if let Some(limit) = config.settings().limits.waiting() {
        tracing::info!(limit, "further clusters of an organization are refused while this many wait for capacity");
    }
    print_welcome(&config, &api, s3.as_ref());
    let objects = control.objects().clone();
    let s3_router = object_storage::s3_router(&config, &control);
    let [api_listening, s3_listening] = listening;
    let s3_stop = wait_until_stopped(stopped.clone());
    let mut s3 = tokio::spawn(object_storage::serve_s3(s3, s3_router, s3_listening, s3_stop, DRAIN_TIMEOUT));
    let (router, api_stop) = (tarn_server::router(app.clone()), wait_until_stopped(stopped));
    let mut server = tokio::spawn(tarn_server::serve(api, router, api_listening, api_stop, DRAIN_TIMEOUT));
    if workers.are_prepared() {
        notify::ready("serving");
    }
    // An engine with a stopped part would accept work and never do it.
    tokio::select! {
        () = signalled => tracing::info!("stopping"),
        ended = &mut server => return Err(Failure(format!("the API server stopped unexpectedly: {ended:?}"))),
        ended = &mut s3 => return Err(Failure(format!("the S3 server stopped unexpectedly: {ended:?}"))),
        ended = &mut proxies => return Err(Failure(format!("the loopback proxies stopped unexpectedly: {ended:?}"))),
        ended = &mut gateway => return Err(Failure(format!("the SSH gateway stopped unexpectedly: {ended:?}"))),
        failure = workers.fail() => return Err(failure),
        failure = host_binding::keep(bound.as_ref()) => return Err(failure),
    }
    notify::stopping();
    app.stop_waiting();
    let _ = stop.send(true);
    let stopping = async {
        let outcome = shut_down([server, s3], &objects, [workers.runner, workers.dispatcher]).await;
        if let Err(error) = reconcilers::access_records::store(&control).await {
            tracing::warn!(%error, "the last uses of API keys and refused logins could not be stored");
        }
        host_binding::release(bound).await;
        data::reserve::keep_reserve(&config.data);
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
