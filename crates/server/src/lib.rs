//! The network side of the engine: the HTTP API in front of the control plane, the SSH gateway to the instances, and
//! the loopback proxy that lets programs in an instance reach the engine.
//!
//! Nothing is decided here: `control` decides what is allowed and what happens. This crate must not know SQL, the host
//! or the clock. Start reading at `http/router.rs`, which shows every route on one page, and then at any endpoint, for
//! example `http/storage/attach.rs`; all endpoints have the same form.

mod app;
mod gateway;
mod http;
mod idle_timeout;
mod loopback_proxy;
mod serve;

pub use app::{App, Front, Limits};
pub use gateway::serve_gateway;
pub use http::openapi::openapi;
pub use http::router::router;
pub use http::waiting::waiting_router;
pub use idle_timeout::with_idle_timeout;
pub use loopback_proxy::{LoopbackProxy, serve_loopback_proxies};
pub use serve::{
    ClientAddress, InstanceConnection, Listening, RefusalForm, Tls, TrustedNetwork, TrustedProxies, serve,
};
