//! Prometheus metrics on a listener of their own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::failure::{Failure, Result};
use crate::serve::last_backup;

/// The interval at which old samples are aggregated.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Starts recording, and returns the listener and the router of the metrics. What is in the data directory is read at
/// each scrape.
pub(in crate::serve) fn start_metrics(listen: SocketAddr, data: PathBuf) -> Result<(std::net::TcpListener, Router)> {
    let builder =
        PrometheusBuilder::new().set_buckets(&[0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0]);
    let handle = builder
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(|e| Failure::with_cause("cannot start metrics", e))?;
    let listener =
        std::net::TcpListener::bind(listen).map_err(|e| Failure::cannot_listen(listen, "--metrics-listen", &e))?;
    tokio::spawn(run_upkeep_timer(handle.clone()));
    let router = Router::new().route("/metrics", get(move || render(handle.clone(), data.clone())));
    Ok((listener, router))
}

async fn render(handle: PrometheusHandle, data: PathBuf) -> String {
    // The disk may hang.
    let age = tokio::task::spawn_blocking(move || last_backup::render_age(&data)).await;
    handle.render() + &age.unwrap_or_default()
}

async fn run_upkeep_timer(handle: PrometheusHandle) {
    loop {
        tokio::time::sleep(UPKEEP_INTERVAL).await;
        handle.run_upkeep();
    }
}
