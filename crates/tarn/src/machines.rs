//! The driver that was chosen, the SSH gateway to its machines, and the doors from them to the engine.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

use tarn_control::SshEndpoint;
use tarn_driver::Driver;
use tarn_driver::fake::FakeDriver;
use tarn_driver::gpus::Watch;
use tarn_driver::local::{LocalDriver, LocalSettings, Protections};
use tarn_model::capacity::Inventory;
use tarn_server::LoopbackProxy;

use crate::config::{Config, DriverName};
use crate::failure::{Failure, Result};
use crate::guest;

/// The hidden command that the local driver runs for every start of an instance.
pub(crate) const HELPER: &str = "instance-helper";

/// The ports inside of what listens outside on one that is not given out there.
const API_INSIDE: u16 = 7070;
const S3_INSIDE: u16 = 7071;

/// Opens the driver.
pub(crate) async fn driver(config: &Config, inventory: &Inventory, gpus: Arc<Watch>) -> Result<Arc<dyn Driver>> {
    match config.driver {
        DriverName::Fake => {
            let driver = FakeDriver::open(&config.data, inventory.clone(), config.fake.clone());
            let driver = driver.map_err(|e| Failure::doing("cannot open the fake driver's world", e))?;
            Ok(Arc::new(driver.with_gpus(gpus)))
        }
        DriverName::Local => {
            let program = std::env::current_exe().map_err(|e| Failure::doing("cannot find this program", e))?;
            let data = std::path::absolute(&config.data).map_err(|e| Failure::doing("cannot find --data", e))?;
            let pool = config.pool().unwrap_or_else(|| data.join("volumes"));
            let settings = LocalSettings {
                data,
                pool,
                run: Path::new("/run/tarn").to_owned(),
                helper: vec![program.into(), HELPER.into()],
                guest: guest::BINARY,
                disk_bytes: config.instance_disk_bytes(),
                protections: protections()?,
                denied: config.network.deny.clone(),
                images: config.images()?,
                inventory: inventory.clone(),
                gpus,
                cdi: config.cdi(),
            };
            let driver = LocalDriver::open(settings).await;
            let hint = "cannot run machines here (--driver fake makes none, for a trial)";
            Ok(Arc::new(driver.map_err(|e| Failure::doing(hint, e))?))
        }
    }
}

/// What instances are kept in by: everything. Only a build for tests can be told to leave something out.
#[cfg_attr(debug_assertions, allow(clippy::disallowed_methods, reason = "a switch for tests is no configuration"))]
fn protections() -> Result<Protections> {
    #[cfg(debug_assertions)]
    if let Ok(names) = std::env::var("TARN_TEST_WITHOUT") {
        return Protections::without(&names).map_err(|why| Failure(format!("TARN_TEST_WITHOUT: {why}")));
    }
    Ok(Protections::default())
}

/// Listens for people who log in; only where there is something to log in to.
pub(crate) fn listen_ssh(config: &Config) -> Result<Option<TcpListener>> {
    let listen = config.ssh_listen;
    match config.driver {
        DriverName::Fake => Ok(None),
        DriverName::Local => {
            let listener = TcpListener::bind(listen);
            listener.map(Some).map_err(|e| Failure::listening(listen, "--ssh-listen", &e))
        }
    }
}

/// What of the engine answers inside of every instance: the API, and S3 where it is served. Only where there is an inside.
pub(crate) fn proxies(config: &Config, api: &TcpListener, s3: Option<&TcpListener>) -> Vec<LoopbackProxy> {
    match config.driver {
        DriverName::Fake => Vec::new(),
        DriverName::Local => {
            let api = LoopbackProxy::to(api.local_addr().unwrap_or(config.listen), API_INSIDE);
            let s3 = s3.and_then(|listener| listener.local_addr().ok()).map(|s3| LoopbackProxy::to(s3, S3_INSIDE));
            std::iter::once(api).chain(s3).collect()
        }
    }
}

/// Where clients are told to log in.
pub(crate) fn ssh_endpoint(config: &Config, listener: &TcpListener) -> SshEndpoint {
    let listening = reachable(listener.local_addr().unwrap_or(config.ssh_listen));
    match &config.public_ssh {
        Some(public) => SshEndpoint { host: public.host.clone(), port: public.port.unwrap_or(listening.port()) },
        None => SshEndpoint { host: listening.ip().to_string(), port: listening.port() },
    }
}

/// Every address of the machine is not one that a client can be given.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    address
}
