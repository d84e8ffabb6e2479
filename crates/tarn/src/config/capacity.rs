//! The `[capacity]`, `[storage]`, `[prices]` and `[[types]]` sections: capacity, volumes, prices and instance types.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tarn_model::Money;
use tarn_model::capacity::{Gpu, Inventory, Shape};
use tarn_model::catalogue::{Catalogue, InstanceType, Prices};

use super::Config;
use crate::failure::{Failure, Result};

/// The size of the pool of the fake driver.
const FAKE_POOL_GB: u64 = 10_000;

/// The `[capacity]` section; absent values are detected on the host.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Capacity {
    pub(super) cpus: Option<f64>,
    memory_mib: Option<u64>,
    /// For the fake driver the size of its pool; for others an upper limit.
    pub(super) storage_gb: Option<u64>,
    pub(super) cpu_overcommit: f64,
    /// Disk size of a new instance.
    pub(super) instance_disk_gb: Option<u64>,
}

/// The `[storage]` section.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Storage {
    /// The directory of the volumes; below the data directory when absent.
    pub(super) pool: Option<PathBuf>,
    pub(super) overcommit: f64,
    /// How long processes may keep using a volume that is detached before they are killed.
    pub(super) detach_grace_seconds: u64,
    pub(super) eligibility: EligibilityName,
}

/// Which clusters may attach volumes.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum EligibilityName {
    #[default]
    Any,
    Tensorpool,
}

/// What happens to running clusters after a restart of the host.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AfterRebootName {
    #[default]
    Start,
    Leave,
}

/// Prices in dollars: per hour, and for storage per gigabyte and month.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PriceList {
    cpu: Option<f64>,
    storage_gb_month: Option<f64>,
    gpus: BTreeMap<String, f64>,
}

/// An instance type that the operator defines.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TypeDefinition {
    name: String,
    cpus: f64,
    memory_mib: u64,
    #[serde(default)]
    gpus: u32,
    gpu_model: Option<String>,
    #[serde(default)]
    hourly: f64,
}

impl Default for Capacity {
    fn default() -> Self {
        Capacity { cpus: None, memory_mib: None, storage_gb: None, cpu_overcommit: 1.0, instance_disk_gb: None }
    }
}

impl Default for Storage {
    fn default() -> Self {
        Storage { pool: None, overcommit: 1.0, detach_grace_seconds: 10, eligibility: EligibilityName::Any }
    }
}

impl Config {
    /// The capacity of this host: as detected, overridden by the configuration, with these GPUs.
    pub(crate) fn inventory(&self, gpus: Vec<Gpu>) -> Inventory {
        let storage_bytes = self.capacity.storage_gb.unwrap_or(FAKE_POOL_GB).saturating_mul(1_000_000_000);
        let mut inventory = tarn_driver::host::inventory(gpus, storage_bytes);
        if let Some(cpus) = self.capacity.cpus {
            inventory.cpu_milli = (cpus * 1000.0) as u64;
        }
        if let Some(mib) = self.capacity.memory_mib {
            inventory.memory_bytes = mib << 20;
        }
        inventory
    }

    /// The directory of volumes, if it is set.
    pub(crate) fn pool(&self) -> Option<PathBuf> {
        self.storage.pool.clone()
    }

    /// The disk size of a new instance, if it is set.
    pub(crate) fn instance_disk_bytes(&self) -> Option<u64> {
        self.capacity.instance_disk_gb.map(|gb| gb.saturating_mul(1_000_000_000))
    }

    /// The inventory with the number of CPUs multiplied by `cpu_overcommit`.
    pub(crate) fn overcommitted(&self, inventory: &Inventory) -> Inventory {
        let cpu_milli = (inventory.cpu_milli as f64 * self.capacity.cpu_overcommit) as u64;
        Inventory { cpu_milli, ..inventory.clone() }
    }

    /// The prices.
    pub(crate) fn prices(&self) -> Result<Prices> {
        let mut prices = Prices::default();
        if let Some(cpu) = self.prices.cpu {
            prices.cpu = parse_price("prices.cpu", cpu)?;
        }
        if let Some(storage) = self.prices.storage_gb_month {
            prices.storage_gb_month = parse_price("prices.storage_gb_month", storage)?;
        }
        for (model, dollars) in &self.prices.gpus {
            prices.gpus.insert(model.clone(), parse_price("prices.gpus", *dollars)?);
        }
        Ok(prices)
    }

    /// The instance types: those derived from the host, and those of the operator.
    pub(crate) fn catalogue(&self, inventory: &Inventory, prices: &Prices) -> Result<Catalogue> {
        // CPUs may be overcommitted, but memory is not, so the derived types share it.
        let memory_bytes = (inventory.memory_bytes as f64 / self.capacity.cpu_overcommit.max(1.0)) as u64;
        let mut catalogue = Catalogue::derived(&Inventory { memory_bytes, ..inventory.clone() }, prices);
        for own in &self.types {
            catalogue.define(own.instance_type(inventory)?);
        }
        Ok(catalogue)
    }
}

impl TypeDefinition {
    fn instance_type(&self, inventory: &Inventory) -> Result<InstanceType> {
        let name = &self.name;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        if name.is_empty() || name.len() > 63 || !name.chars().all(plain) {
            return Err(Failure(format!(
                "the name of the type '{name}' must have 1 to 63 letters, digits, '-' and '.'"
            )));
        }
        let cpu_milli = (self.cpus * 1000.0).round();
        if !(1.0..=1e9).contains(&cpu_milli) || self.memory_mib == 0 {
            return Err(Failure(format!("the type {name} needs at least 0.001 cpus and 1 memory_mib")));
        }
        if (self.gpus > 0) != self.gpu_model.is_some() {
            return Err(Failure(format!("the type {name} needs both gpus and gpu_model, or neither")));
        }
        let simulated = inventory.gpus.iter().any(|gpu| Some(&gpu.model) == self.gpu_model.as_ref() && gpu.simulated);
        let shape = Shape {
            cpu_milli: cpu_milli as u64,
            memory_bytes: self.memory_mib.saturating_mul(1 << 20),
            gpus: self.gpus,
            gpu_model: self.gpu_model.clone(),
        };
        Ok(InstanceType { name: name.clone(), shape, hourly: parse_price("types.hourly", self.hourly)?, simulated })
    }
}

fn parse_price(what: &str, dollars: f64) -> Result<Money> {
    let amount = Money::from_dollars(dollars).filter(|amount| *amount >= Money::ZERO);
    amount.ok_or_else(|| Failure(format!("{what} must be a non-negative amount of dollars")))
}
