//! HTTP in front of the control plane: it parses, authenticates, calls, and answers in the words of the API. And the SSH
//! gateway, which lets people into their instances, and the doors in the instances, behind which the engine answers.
//!
//! Nothing is decided here: what may be done and what happens is the business of `control`, and SQL, the machine and the
//! clock are unknown. Start reading at `http/router.rs`, which shows every route on one page, and then at any endpoint, for
//! example `http/storage/attach.rs`; a reader who knows one knows them all.

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
pub use loopback_proxy::{LoopbackProxy, serve_loopback_proxies};
pub use serve::serve;
