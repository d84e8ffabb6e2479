//! The SSH gateway: one port for all instances; the login name selects the instance.
//!
//! `control` decides which logins are allowed, and `tarn-ssh` implements the protocol. Start reading at
//! [`serve_gateway`], then at `authorizer.rs`.

mod authorizer;

use std::future::Future;
use std::net::TcpListener;
use std::sync::Arc;

use tarn_control::Control;
use tarn_ssh::Settings;
use tokio::sync::watch;

/// Serves SSH until `stop` completes; then all sessions through this gateway end, and processes in the instances keep
/// running.
pub async fn serve_gateway(listener: TcpListener, control: Control, stop: impl Future<Output = ()>) {
    let settings = Settings::new(&control.gateway_host_key().private_key).expect("a derived host key can be read");
    let listener = listener.set_nonblocking(true).and_then(|()| tokio::net::TcpListener::from_std(listener));
    match listener {
        Ok(listener) => {
            let (_, settings) = watch::channel(Arc::new(settings));
            let authorizer = authorizer::ControlAuthorizer::new(control, Default::default());
            tarn_ssh::serve(listener, settings, Arc::new(authorizer), stop).await;
        }
        Err(error) => tracing::error!(%error, "the SSH gateway cannot listen"),
    }
}
