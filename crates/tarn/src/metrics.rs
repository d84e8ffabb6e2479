//! Prometheus metrics on a listener of their own.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::failure::{Failure, Result};

/// How often old samples are folded together.
const UPKEEP: Duration = Duration::from_secs(5);

/// Starts counting, and returns what serves the counts.
pub(crate) fn start(listen: SocketAddr) -> Result<(std::net::TcpListener, Router)> {
    let builder =
        PrometheusBuilder::new().set_buckets(&[0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0]);
    let handle =
        builder.and_then(PrometheusBuilder::install_recorder).map_err(|e| Failure::doing("cannot start metrics", e))?;
    let listener =
        std::net::TcpListener::bind(listen).map_err(|e| Failure::listening(listen, "--metrics-listen", &e))?;
    tokio::spawn(upkeep(handle.clone()));
    let router = Router::new().route("/metrics", get(move || async move { handle.render() }));
    Ok((listener, router))
}

async fn upkeep(handle: PrometheusHandle) {
    loop {
        tokio::time::sleep(UPKEEP).await;
        handle.run_upkeep();
    }
}
