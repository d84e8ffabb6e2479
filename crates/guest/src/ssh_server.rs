//! The SSH server of the instance, through which the nodes reach each other. Its sessions are link streams like the
//! engine's, served inside this process.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tarn_link::Stream;
use tarn_ssh::{Denied, Limits, Login, Settings, Target};
use tokio::net::TcpListener;

use crate::link_service::Guest;

/// The buffer of a stream between the SSH server and the link service.
const STREAM_SIZE: usize = 256 << 10;

/// Returns the settings with a host key. The guest is small, so it buffers less than the engine's gateway.
pub(crate) fn ssh_settings(host_key: &str) -> io::Result<Settings> {
    let mut settings = Settings::new(host_key).map_err(io::Error::other)?;
    let limits = Limits { connections: 256, window: 2 << 20, held_per_connection: 8 << 20, ..settings.limits };
    settings.limits = limits;
    Ok(settings)
}

/// Listens on a port of all addresses, including IPv6 if the instance has it.
pub async fn listen_on_port(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await,
    }
}

/// Serves SSH until `stop` completes.
pub async fn serve_ssh(guest: Arc<Guest>, listener: TcpListener, stop: impl Future<Output = ()>) {
    let settings = guest.ssh_settings();
    tarn_ssh::serve(listener, settings, Arc::new(SshServer(guest)), stop).await;
}

/// Authorizes the user of the instance with any of the authorized keys. In an instance of a container image, the
/// default user name is accepted as well.
struct SshServer(Arc<Guest>);

impl tarn_ssh::Authorizer for SshServer {
    fn authorize<'a>(&'a self, login: Login<'a>) -> BoxFuture<'a, Result<Arc<dyn Target>, Denied>> {
        let is_authorized = self.0.is_session_user(login.user) && self.0.is_key_authorized(&login.key.line);
        let answer =
            if is_authorized { Ok(Arc::new(ThisInstance(self.0.clone())) as Arc<dyn Target>) } else { Err(Denied) };
        std::future::ready(answer).boxed()
    }
}

/// The instance itself.
struct ThisInstance(Arc<Guest>);

impl Target for ThisInstance {
    fn dial(&self) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        let (ours, theirs) = tokio::io::duplex(STREAM_SIZE);
        drop(tokio::spawn(self.0.clone().serve_stream(ours)));
        std::future::ready(Ok(Box::new(theirs) as Box<dyn Stream>)).boxed()
    }
}
