//! Opens the driver that the configuration names.

use std::path::Path;
use std::sync::Arc;

use tarn_driver::Driver;
use tarn_driver::fake::FakeDriver;
use tarn_driver::gpus::Watch;
use tarn_driver::local::network::Policy;
use tarn_driver::local::{LocalDriver, LocalSettings, Protections};
use tarn_model::capacity::Inventory;
use tarn_store::{Store, installation};

use super::guest;
use crate::config::{Config, DriverName};
use crate::failure::{Failure, Result, StartFailure, StartResult};

/// The hidden command that the local driver runs at every start of an instance.
pub(crate) const HELPER: &str = "instance-helper";

/// Opens the driver.
pub(crate) async fn open_driver(
    config: &Config,
    policy: Policy,
    inventory: &Inventory,
    gpus: Arc<Watch>,
) -> Result<Arc<dyn Driver>> {
    match config.driver {
        DriverName::Fake => {
            let driver = FakeDriver::open(&config.data, inventory.clone(), config.fake.clone());
            let driver = driver.map_err(|e| Failure::with_cause("cannot open the world file of the fake driver", e))?;
            Ok(Arc::new(driver.with_gpus(gpus)))
        }
        DriverName::Local => {
            let program =
                std::env::current_exe().map_err(|e| Failure::with_cause("cannot find the path of this program", e))?;
            let data = std::path::absolute(&config.data)
                .map_err(|e| Failure::with_cause("cannot resolve the path of --data", e))?;
            let pool = config.pool().unwrap_or_else(|| data.join("volumes"));
            let images = config.images()?;
            tracing::info!(
                listed = images.private_registries.len() + images.registries.len(),
                "images are pulled from registries at public addresses, and from those that [images] names"
            );
            let settings = LocalSettings {
                data,
                pool,
                run: Path::new("/run/tarn").to_owned(),
                helper: vec![program.into(), HELPER.into()],
                guest: guest::BINARY,
                disk_bytes: config.instance_disk_bytes(),
                protections: instance_protections()?,
                lxcfs: config.instances.lxcfs().map(Path::to_owned),
                policy,
                images,
                inventory: inventory.clone(),
                gpus,
                cdi: config.cdi(),
            };
            let driver = LocalDriver::open(settings).await;
            let hint = "cannot run instances on this host (use --driver fake for a trial without instances)";
            Ok(Arc::new(driver.map_err(|e| Failure::with_cause(hint, e))?))
        }
    }
}

/// Decides which networks instances may reach, and logs when an older installation leaves private networks open.
pub(crate) async fn network_policy(config: &Config, store: &Store) -> StartResult<Policy> {
    let permissive = store.read(installation::keeps_permissive_defaults).await;
    let is_older =
        permissive.map_err(|e| StartFailure::with_cause("cannot read the defaults of this installation", e))?;
    let policy = config.network.policy(is_older);
    if !policy.closes_private && config.network.private.is_none() && config.driver == DriverName::Local {
        tracing::warn!(
            "instances reach private networks, because this installation did so before they were closed by default; \
             set network.private to \"closed\", and network.allow to what instances need, or to \"open\" to keep it"
        );
    }
    Ok(policy)
}

/// The protections of instances: all of them. Only a test build can leave some out.
#[cfg_attr(debug_assertions, allow(clippy::disallowed_methods, reason = "a switch for tests is no configuration"))]
fn instance_protections() -> Result<Protections> {
    #[cfg(debug_assertions)]
    if let Ok(names) = std::env::var("TARN_TEST_WITHOUT") {
        return Protections::without(&names).map_err(|why| Failure(format!("TARN_TEST_WITHOUT: {why}")));
    }
    Ok(Protections::default())
}
