//! The addresses of the engine: the SSH gateway, the loopback proxies, and what clients are told. S3, metrics and TLS
//! have files of their own.

pub(in crate::serve) mod metrics;
pub(in crate::serve) mod object_storage;
pub(crate) mod tls;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use tarn_control::SshEndpoint;
use tarn_server::{InstanceConnection, Listening, LoopbackProxy, RefusalForm, Tls};
use tokio::sync::mpsc;

use crate::config::{Config, DriverName};
use crate::failure::{Failure, Result};

/// The ports inside an instance, for engines that listen on an ephemeral port.
const API_INSIDE: u16 = 7070;
const S3_INSIDE: u16 = 7071;

/// What the engine listens on, from its start to its end.
pub(crate) struct Listeners {
    pub(crate) api: TcpListener,
    pub(crate) s3: Option<TcpListener>,
    pub(crate) gateway: Option<TcpListener>,
    pub(crate) tls: Option<Tls>,
}

impl Listeners {
    /// Opens all listeners. Connections wait in their queues until they are served.
    pub(crate) fn open(config: &Config) -> Result<Listeners> {
        let listen = config.listen;
        let api = TcpListener::bind(listen).map_err(|e| Failure::cannot_listen(listen, "--listen", &e))?;
        let tls = match (&config.tls_cert, &config.tls_key) {
            (Some(cert), Some(key)) => Some(tls::start_tls(cert, key)?),
            _ => None,
        };
        Ok(Listeners { api, s3: object_storage::listen_s3(config)?, gateway: listen_ssh(config)?, tls })
    }

    /// How the API or S3 is served.
    pub(crate) fn listening(&self, config: &Config, from_instances: FromInstances, refusals: RefusalForm) -> Listening {
        let trusted_proxies = config.trusted_proxies.iter().copied().collect();
        Listening { tls: self.tls.clone(), trusted_proxies, from_instances, refusals }
    }
}

/// Opens the listener of the SSH gateway. The fake driver has no instances to log in to.
fn listen_ssh(config: &Config) -> Result<Option<TcpListener>> {
    let listen = config.ssh_listen;
    match config.driver {
        DriverName::Fake => Ok(None),
        DriverName::Local => {
            let listener = TcpListener::bind(listen);
            listener.map(Some).map_err(|e| Failure::cannot_listen(listen, "--ssh-listen", &e))
        }
    }
}

/// The connections from inside the instances, which a server takes.
pub(crate) type FromInstances = Option<mpsc::Receiver<InstanceConnection>>;

/// The loopback proxies inside every instance: the API, and S3 if it is served. The fake driver has none. Also returns
/// the connections to the API and to S3.
pub(crate) fn loopback_proxies(
    config: &Config,
    api: &TcpListener,
    s3: Option<&TcpListener>,
) -> (Vec<LoopbackProxy>, FromInstances, FromInstances) {
    match config.driver {
        DriverName::Fake => (Vec::new(), None, None),
        DriverName::Local => {
            let (api, to_api) = LoopbackProxy::to(api.local_addr().unwrap_or(config.listen), API_INSIDE);
            let s3 = s3.and_then(|listener| listener.local_addr().ok()).map(|s3| LoopbackProxy::to(s3, S3_INSIDE));
            let (s3, to_s3) = s3.unzip();
            (std::iter::once(api).chain(s3).collect(), Some(to_api), to_s3)
        }
    }
}

/// The SSH address that clients are told.
pub(crate) fn ssh_endpoint(config: &Config, listener: &TcpListener) -> SshEndpoint {
    let listening = reachable_address(listener.local_addr().unwrap_or(config.ssh_listen));
    match &config.public_ssh {
        Some(public) => SshEndpoint { host: public.host.clone(), port: public.port.unwrap_or(listening.port()) },
        None => SshEndpoint { host: listening.ip().to_string(), port: listening.port() },
    }
}

/// Replaces the unspecified address, which clients cannot connect to, with the loopback address.
pub(crate) fn reachable_address(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    address
}
