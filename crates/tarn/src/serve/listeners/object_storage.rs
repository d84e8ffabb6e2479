//! Object storage: its directory, and the S3 server on a listener of its own.

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::HttpBody;
use axum::error_handling::HandleError;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use tarn_control::{Control, Secrets};
use tarn_model::access::Policy;
use tarn_objects::{Components, Objects, Settings, s3};
use tarn_server::{ClientAddress, Listening};
use tarn_store::{Store, accounts};
use tokio::time::Instant;

use super::reachable_address;
use crate::config::{Config, S3Listen};
use crate::data::ownership_mark;
use crate::environment::{EngineClock, RandomIds};
use crate::failure::{Failure, Result, StartFailure, StartResult};

/// How long a client may send nothing in the middle of a body.
const BODY_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Opens the objects directory.
pub(crate) async fn open_objects(
    config: &Config,
    store: &Store,
    clock: Arc<EngineClock>,
    secrets: &Secrets,
    access: Policy,
) -> StartResult<Objects> {
    let directory = config.objects_directory();
    ownership_mark::ensure_owned(&directory, &config.data, store, &RandomIds).await?;
    let shown = directory.display().to_string();
    let parts = Components {
        store: store.clone(),
        directory,
        secret: secrets.object_storage_key(),
        settings: Settings { access, ..config.objects_settings() },
        clock,
        ids: Arc::new(RandomIds),
    };
    let objects = Objects::open(parts);
    let objects = objects.map_err(|e| Failure::with_cause(format!("cannot open the objects directory {shown}"), e))?;
    warn_of_legacy_keys(store, &objects).await?;
    Ok(objects)
}

/// Says that keys of whole organizations still work: revoking the access of a member does not end what they know.
async fn warn_of_legacy_keys(store: &Store, objects: &Objects) -> StartResult<()> {
    let count = store.read(accounts::count_legacy_keys).await;
    let organizations = count.map_err(|error: tarn_store::Error| {
        StartFailure::with_cause("cannot read the keys of object storage", error)
    })?;
    let until = objects.legacy_keys_until().map_or("they are retired".to_owned(), |time| time.to_string());
    if organizations > 0 {
        tracing::warn!(
            organizations,
            until,
            "organizations have a legacy S3 key, which works for everyone who knows it; their administrators end it with \
             POST /object-storage/keys/retire-legacy, and object_storage.legacy_keys_until ends all"
        );
    }
    Ok(())
}

/// The default limit of what is kept for the jobs of an organization: this part of the disk, and not less than these
/// bytes.
const JOB_DISK_PART: u64 = 10;
const MIN_JOB_BYTES: u64 = 5_000_000_000;

/// Returns how many bytes may be kept for the jobs of an organization, unless the configuration or an administrator
/// says otherwise.
pub(crate) fn default_job_bytes(objects: &Objects) -> Result<u64> {
    let disk =
        objects.disk_bytes().map_err(|e| Failure::with_cause("cannot read the size of the disk of objects", e))?;
    let bytes = (disk / JOB_DISK_PART).max(MIN_JOB_BYTES);
    let gigabytes = bytes as f64 / 1e9;
    tracing::info!(
        "an organization may keep {gigabytes:.1} GB of job files, logs and outputs; limits.job_gb changes it"
    );
    Ok(bytes)
}

/// Opens the S3 listener, unless S3 is switched off.
pub(crate) fn listen_s3(config: &Config) -> Result<Option<TcpListener>> {
    match config.s3_listen {
        S3Listen::Nowhere => Ok(None),
        S3Listen::At(listen) => {
            let option = "--s3-listen, or none";
            TcpListener::bind(listen).map(Some).map_err(|e| Failure::cannot_listen(listen, option, &e))
        }
    }
}

/// The endpoint that clients are told.
pub(crate) fn s3_endpoint(config: &Config, listener: &TcpListener) -> Result<String> {
    if let Some(public) = &config.public_s3 {
        return Ok(public.url.clone());
    }
    let address = listener.local_addr().map_err(|e| Failure::with_cause("cannot determine the address of S3", e))?;
    let scheme = if config.tls_cert.is_some() { "https" } else { "http" };
    Ok(format!("{scheme}://{}", reachable_address(address)))
}

/// The router of S3, which handles every path.
pub(crate) fn s3_router(config: &Config, control: &Control) -> Router {
    let domains = config.public_s3.iter().filter_map(|public| public.domain()).collect();
    let (objects, control) = (control.objects().clone(), control.clone());
    let on_refusal = Arc::new(move |reason, address| control.count_refused_s3_call(reason, address));
    let service = HandleError::new(s3::service(objects, domains, on_refusal), log_response_error);
    Router::new().fallback_service(service).layer(from_fn(measure_call))
}

/// Serves S3 until `shutdown` completes; without a listener it only waits.
pub(crate) async fn serve_s3(
    listener: Option<TcpListener>,
    router: Router,
    listening: Listening,
    shutdown: impl Future<Output = ()> + Send + 'static,
    drain: Duration,
) -> io::Result<()> {
    match listener {
        Some(listener) => tarn_server::serve(listener, router, listening, shutdown, drain).await,
        None => {
            shutdown.await;
            Ok(())
        }
    }
}

/// Handles an error of the S3 service itself.
async fn log_response_error<E: Debug>(error: E) -> StatusCode {
    tracing::error!(?error, "cannot build an S3 response");
    StatusCode::INTERNAL_SERVER_ERROR
}

/// Records metrics of a call, sets the idle timeout of its body, and tells S3 the address of the client.
async fn measure_call(mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let method = match *request.method() {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::PUT => "PUT",
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        // Callers may invent methods; each would add a metric label.
        _ => "other",
    };
    if let Some(ClientAddress(address)) = request.extensions().get().copied() {
        request.extensions_mut().insert(s3::ClientAddress(address));
    }
    let request = request.map(|body| tarn_server::with_idle_timeout(body, BODY_IDLE_TIMEOUT));
    let received = request.body().size_hint().exact().unwrap_or(0);
    let response = next.run(request).await;
    let sent = if method == "HEAD" { 0 } else { response.body().size_hint().exact().unwrap_or(0) };
    let status = response.status().as_str().to_owned();
    metrics::histogram!("s3_request_duration_seconds", "method" => method).record(began.elapsed().as_secs_f64());
    metrics::counter!("s3_requests_total", "method" => method, "status" => status).increment(1);
    metrics::counter!("s3_received_bytes_total").increment(received);
    metrics::counter!("s3_sent_bytes_total").increment(sent);
    response
}
