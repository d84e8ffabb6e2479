//! Object storage: opened on its directory, and S3 in front of it on a listener of its own.

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
use rustls::ServerConfig;
use tarn_control::Secrets;
use tarn_objects::{Components, Objects, s3};
use tarn_store::Store;
use tokio::time::Instant;

use crate::belonging;
use crate::config::{Config, S3Listen};
use crate::environment::{RandomIds, SystemClock};
use crate::failure::{Failure, Result};
use crate::machines::reachable;
use crate::patience;

/// How long a client may send nothing in the middle of a body.
const PATIENCE: Duration = Duration::from_secs(60);

/// Opens it.
pub(crate) async fn open(config: &Config, store: &Store, secrets: &Secrets) -> Result<Objects> {
    let directory = config.objects_directory();
    belonging::ensure(&directory, store, &RandomIds).await?;
    let shown = directory.display().to_string();
    let parts = Components {
        store: store.clone(),
        directory,
        secret: secrets.object_storage_key(),
        settings: config.objects_settings(),
        clock: Arc::new(SystemClock),
        ids: Arc::new(RandomIds),
    };
    Objects::open(parts).map_err(|e| Failure::doing(format!("cannot keep objects in {shown}"), e))
}

/// Listens for S3, unless that is switched off.
pub(crate) fn listen(config: &Config) -> Result<Option<TcpListener>> {
    match config.s3_listen {
        S3Listen::Nowhere => Ok(None),
        S3Listen::At(listen) => {
            let option = "--s3-listen, or none";
            TcpListener::bind(listen).map(Some).map_err(|e| Failure::listening(listen, option, &e))
        }
    }
}

/// The address that clients are told.
pub(crate) fn endpoint(config: &Config, listener: &TcpListener) -> Result<String> {
    if let Some(public) = &config.public_s3 {
        return Ok(public.url.clone());
    }
    let address = listener.local_addr().map_err(|e| Failure::doing("cannot tell the address of S3", e))?;
    let scheme = if config.tls_cert.is_some() { "https" } else { "http" };
    Ok(format!("{scheme}://{}", reachable(address)))
}

/// S3 as a router: every path belongs to it.
pub(crate) fn router(config: &Config, objects: Objects) -> Router {
    let domains = config.public_s3.iter().filter_map(|public| public.domain()).collect();
    let service = HandleError::new(s3::service(objects, domains), unspeakable);
    Router::new().fallback_service(service).layer(from_fn(measure))
}

/// Serves it until `shutdown` is done; where nothing listens, it only waits.
pub(crate) async fn serve(
    listener: Option<TcpListener>,
    router: Router,
    tls: Option<ServerConfig>,
    shutdown: impl Future<Output = ()> + Send + 'static,
    drain: Duration,
) -> io::Result<()> {
    match listener {
        Some(listener) => tarn_server::serve(listener, router, tls, shutdown, drain).await,
        None => {
            shutdown.await;
            Ok(())
        }
    }
}

/// An answer that could not be written down.
async fn unspeakable<E: Debug>(error: E) -> StatusCode {
    tracing::error!(?error, "an answer of S3 could not be made");
    StatusCode::INTERNAL_SERVER_ERROR
}

/// Counts calls and what they carry, and does not wait for ever for what they should carry.
async fn measure(request: Request, next: Next) -> Response {
    let began = Instant::now();
    let method = match *request.method() {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::PUT => "PUT",
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        // Callers may invent methods; the metrics must not grow with them.
        _ => "other",
    };
    let request = request.map(|body| patience::with(body, PATIENCE));
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
