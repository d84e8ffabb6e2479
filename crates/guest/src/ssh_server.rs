//! The SSH server of the instance, by which its nodes reach each other. Its sessions are link streams like the engine's,
//! served inside this process.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tarn_link::Stream;
use tarn_ssh::{Denied, Limits, Settings, Target, Visit};
use tokio::net::TcpListener;

use crate::service::Guest;

/// How much a stream holds between the SSH server and the service.
const STREAM_SIZE: usize = 256 << 10;

/// The settings with a host key. The guest is small, so it holds back less than the engine's gateway.
pub(crate) fn settings(host_key: &str) -> io::Result<Settings> {
    let mut settings = Settings::new(host_key).map_err(io::Error::other)?;
    let limits = Limits { connections: 256, window: 2 << 20, held_per_connection: 8 << 20, ..settings.limits };
    settings.limits = limits;
    Ok(settings)
}

/// Listens on a port of all addresses, also those of IPv6 where the instance has it.
pub async fn listen(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await,
    }
}

/// Serves SSH until `stop` is done.
pub async fn serve(guest: Arc<Guest>, listener: TcpListener, stop: impl Future<Output = ()>) {
    let settings = guest.ssh_settings();
    tarn_ssh::serve(listener, settings, Arc::new(SshServer(guest)), stop).await;
}

/// Lets in the one user, with any of the keys that open the instance. In an instance of an image he may also use the name that
/// users have everywhere else.
struct SshServer(Arc<Guest>);

impl tarn_ssh::Authorizer for SshServer {
    fn enter<'a>(&'a self, visit: Visit<'a>) -> BoxFuture<'a, Result<Arc<dyn Target>, Denied>> {
        let may_enter = self.0.is_user(visit.user) && self.0.opens(&visit.key.line);
        let answer = if may_enter { Ok(Arc::new(Inside(self.0.clone())) as Arc<dyn Target>) } else { Err(Denied) };
        std::future::ready(answer).boxed()
    }
}

/// This very instance.
struct Inside(Arc<Guest>);

impl Target for Inside {
    fn dial(&self) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        let (ours, theirs) = tokio::io::duplex(STREAM_SIZE);
        drop(tokio::spawn(self.0.clone().serve(ours)));
        std::future::ready(Ok(Box::new(theirs) as Box<dyn Stream>)).boxed()
    }
}
