//! The configuration: one documented structure from a TOML file, then the environment, then options; later ones win.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Deserialize;
use tarn_control::{Eligibility, Settings};
use tarn_model::Money;
use tarn_model::capacity::{Inventory, Shape};
use tarn_model::catalogue::{Catalogue, InstanceType, Prices};
use tarn_store::Database;

use crate::failure::{Failure, Result};

/// Where the data is.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DataOptions {
    /// Directory for everything that is kept [default: ./tarn-data]
    #[arg(long, env = "TARN_DATA", value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// postgres://user:password@host/database [default: SQLite in the data directory]
    #[arg(long, env = "TARN_DATABASE", value_name = "URL", hide_env_values = true)]
    pub(crate) database: Option<String>,
}

/// Options of `tarn serve`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ServeOptions {
    /// Configuration file in TOML; see docs/operating/configuration.md
    #[arg(long, env = "TARN_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    data: DataOptions,
    /// Address of the API [default: 127.0.0.1:7070]
    #[arg(long, env = "TARN_LISTEN", value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// What clients are told to use [default: from the listen address]
    #[arg(long, env = "TARN_PUBLIC_URL", value_name = "URL")]
    public_url: Option<String>,
    /// Certificate chain in PEM, for HTTPS
    #[arg(long, env = "TARN_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key in PEM, for HTTPS
    #[arg(long, env = "TARN_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Address of the Prometheus metrics; none are served without it
    #[arg(long, env = "TARN_METRICS_LISTEN", value_name = "ADDR")]
    metrics_listen: Option<SocketAddr>,
    /// What makes instances [default: fake]
    #[arg(long, env = "TARN_DRIVER", value_enum)]
    driver: Option<DriverName>,
    /// Declare GPUs that do not exist, for trials: 8xH100 or 8xH100,2xL40S
    #[arg(long, env = "TARN_SIMULATED_GPUS", value_name = "GPUS")]
    simulated_gpus: Option<tarn_driver::machine::Simulated>,
    /// Calls per second for each API key; 0 is no limit [default: 50]
    #[arg(long, env = "TARN_RATE_LIMIT_PER_SECOND", value_name = "N")]
    rate_limit_per_second: Option<u32>,
    /// How log lines look [default: text]
    #[arg(long, env = "TARN_LOG_FORMAT", value_enum)]
    log_format: Option<LogFormat>,
    /// What is logged, such as info or tarn_server=debug [default: info]
    #[arg(long, env = "TARN_LOG", value_name = "FILTER")]
    log: Option<String>,
}

/// What makes instances real.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DriverName {
    /// Nothing is real: for trials and tests
    #[default]
    Fake,
    /// Isolated environments on this machine (not in this version)
    Local,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people
    #[default]
    Text,
    /// For machines
    Json,
}

/// Everything that can be set. Unknown keys are refused.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) data: PathBuf,
    pub(crate) database: Option<String>,
    pub(crate) listen: SocketAddr,
    pub(crate) public_url: Option<String>,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) metrics_listen: Option<SocketAddr>,
    pub(crate) driver: DriverName,
    pub(crate) simulated_gpus: Option<tarn_driver::machine::Simulated>,
    pub(crate) log_format: LogFormat,
    pub(crate) log: String,
    pub(crate) rate_limit: RateLimit,
    pub(crate) capacity: Capacity,
    pub(crate) storage: Storage,
    pub(crate) requests: Requests,
    pub(crate) prices: PriceList,
    pub(crate) types: Vec<TypeDefinition>,
    pub(crate) fake: tarn_driver::fake::Settings,
}

/// How often one API key may call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RateLimit {
    pub(crate) per_second: u32,
    pub(crate) burst: u32,
}

/// What there is to give; what is absent is found out.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Capacity {
    cpus: Option<f64>,
    memory_mib: Option<u64>,
    storage_gb: u64,
    cpu_overcommit: f64,
}

/// Rules for volumes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Storage {
    overcommit: f64,
    eligibility: EligibilityName,
}

/// Which clusters may have volumes.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum EligibilityName {
    #[default]
    Any,
    Tensorpool,
}

/// Limits of the work behind calls.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Requests {
    work_deadline_seconds: u64,
    capacity_deadline_seconds: u64,
    step_timeout_seconds: u64,
    lease_seconds: u64,
    parallel: u32,
}

/// Prices in dollars: per hour, and for storage per gigabyte and month.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PriceList {
    cpu: Option<f64>,
    storage_gb_month: Option<f64>,
    gpus: BTreeMap<String, f64>,
}

/// A type of instance of the operator's own.
#[derive(Clone, Debug, Deserialize)]
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

impl Default for Config {
    fn default() -> Self {
        Config {
            data: PathBuf::from("./tarn-data"),
            database: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 7070)),
            public_url: None,
            tls_cert: None,
            tls_key: None,
            metrics_listen: None,
            driver: DriverName::default(),
            simulated_gpus: None,
            log_format: LogFormat::default(),
            log: "info".to_owned(),
            rate_limit: RateLimit::default(),
            capacity: Capacity::default(),
            storage: Storage::default(),
            requests: Requests::default(),
            prices: PriceList::default(),
            types: Vec::new(),
            fake: tarn_driver::fake::Settings::default(),
        }
    }
}

impl Default for RateLimit {
    fn default() -> Self {
        RateLimit { per_second: 50, burst: 200 }
    }
}

impl Default for Capacity {
    fn default() -> Self {
        Capacity { cpus: None, memory_mib: None, storage_gb: 10_000, cpu_overcommit: 1.0 }
    }
}

impl Default for Storage {
    fn default() -> Self {
        Storage { overcommit: 1.0, eligibility: EligibilityName::Any }
    }
}

impl Default for Requests {
    fn default() -> Self {
        let settings = Settings::default();
        Requests {
            work_deadline_seconds: settings.work_deadline.as_secs(),
            capacity_deadline_seconds: settings.capacity_deadline.as_secs(),
            step_timeout_seconds: settings.step_timeout.as_secs(),
            lease_seconds: settings.lease.as_secs(),
            parallel: settings.parallel,
        }
    }
}

impl Config {
    /// Reads the file, if one is named, and puts the options over it.
    pub(crate) fn load(options: &ServeOptions) -> Result<Self> {
        let mut config = match &options.config {
            Some(path) => read(path)?,
            None => Config::default(),
        };
        let ServeOptions { data, listen, public_url, tls_cert, tls_key, metrics_listen, .. } = options.clone();
        config.data = data.data.unwrap_or(config.data);
        config.database = data.database.or(config.database);
        config.listen = listen.unwrap_or(config.listen);
        config.public_url = public_url.or(config.public_url);
        config.tls_cert = tls_cert.or(config.tls_cert);
        config.tls_key = tls_key.or(config.tls_key);
        config.metrics_listen = metrics_listen.or(config.metrics_listen);
        config.driver = options.driver.unwrap_or(config.driver);
        config.simulated_gpus = options.simulated_gpus.clone().or(config.simulated_gpus);
        config.rate_limit.per_second = options.rate_limit_per_second.unwrap_or(config.rate_limit.per_second);
        config.log_format = options.log_format.unwrap_or(config.log_format);
        config.log = options.log.clone().unwrap_or(config.log);
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<()> {
        let sane = |what: &str, value: f64| match value.is_finite() && value > 0.0 && value <= 1e6 {
            true => Ok(()),
            false => Err(Failure(format!("{what} must be a number above 0 and at most 1000000, not {value}"))),
        };
        sane("capacity.cpu_overcommit", self.capacity.cpu_overcommit)?;
        sane("storage.overcommit", self.storage.overcommit)?;
        sane("capacity.cpus", self.capacity.cpus.unwrap_or(1.0))?;
        for (what, value) in [
            ("requests.work_deadline_seconds", self.requests.work_deadline_seconds),
            ("requests.capacity_deadline_seconds", self.requests.capacity_deadline_seconds),
            ("requests.step_timeout_seconds", self.requests.step_timeout_seconds),
            ("requests.lease_seconds", self.requests.lease_seconds),
            ("requests.parallel", self.requests.parallel.into()),
        ] {
            if value == 0 {
                return Err(Failure(format!("{what} must be at least 1")));
            }
        }
        match (&self.tls_cert, &self.tls_key) {
            (Some(_), None) | (None, Some(_)) => Err(Failure("HTTPS needs both --tls-cert and --tls-key".to_owned())),
            _ => Ok(()),
        }
    }

    /// Which database is meant.
    pub(crate) fn database(&self) -> Result<Database> {
        database(&self.data, self.database.as_deref())
    }

    /// What the control plane is told.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            work_deadline: Duration::from_secs(self.requests.work_deadline_seconds),
            capacity_deadline: Duration::from_secs(self.requests.capacity_deadline_seconds),
            step_timeout: Duration::from_secs(self.requests.step_timeout_seconds),
            lease: Duration::from_secs(self.requests.lease_seconds),
            parallel: self.requests.parallel,
            eligibility: match self.storage.eligibility {
                EligibilityName::Any => Eligibility::Any,
                EligibilityName::Tensorpool => Eligibility::Tensorpool,
            },
        }
    }

    /// What there is to give, as found on this machine and as set.
    pub(crate) fn inventory(&self) -> Inventory {
        let storage_bytes = (self.capacity.storage_gb as f64 * 1e9 * self.storage.overcommit) as u64;
        let mut inventory = tarn_driver::machine::inventory(self.simulated_gpus.as_ref(), storage_bytes);
        if let Some(cpus) = self.capacity.cpus {
            inventory.cpu_milli = (cpus * 1000.0) as u64;
        }
        if let Some(mib) = self.capacity.memory_mib {
            inventory.memory_bytes = mib << 20;
        }
        inventory
    }

    /// The inventory with the CPUs counted as often as the operator wants.
    pub(crate) fn overcommitted(&self, inventory: &Inventory) -> Inventory {
        let cpu_milli = (inventory.cpu_milli as f64 * self.capacity.cpu_overcommit) as u64;
        Inventory { cpu_milli, ..inventory.clone() }
    }

    /// What things cost.
    pub(crate) fn prices(&self) -> Result<Prices> {
        let mut prices = Prices::default();
        if let Some(cpu) = self.prices.cpu {
            prices.cpu = price("prices.cpu", cpu)?;
        }
        if let Some(storage) = self.prices.storage_gb_month {
            prices.storage_gb_month = price("prices.storage_gb_month", storage)?;
        }
        for (model, dollars) in &self.prices.gpus {
            prices.gpus.insert(model.clone(), price("prices.gpus", *dollars)?);
        }
        Ok(prices)
    }

    /// What can be asked for: what follows from the machine, and the operator's own types.
    pub(crate) fn catalogue(&self, inventory: &Inventory, prices: &Prices) -> Result<Catalogue> {
        let mut catalogue = Catalogue::derived(inventory, prices);
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
                "the type '{name}' needs a name of letters, digits, '-' and '.', at most 63 of them"
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
        Ok(InstanceType { name: name.clone(), shape, hourly: price("types.hourly", self.hourly)?, simulated })
    }
}

/// Which database is meant by these options.
pub(crate) fn database(data: &Path, url: Option<&str>) -> Result<Database> {
    match url {
        None => Ok(Database::Sqlite(data.join("tarn.db"))),
        Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
            Ok(Database::Postgres(url.to_owned()))
        }
        Some(_) => Err(Failure("--database takes a postgres:// address; without it SQLite is used".to_owned())),
    }
}

fn read(path: &Path) -> Result<Config> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| Failure::doing(format!("cannot read {shown}"), e))?;
    toml::from_str(&text).map_err(|e| Failure(format!("{shown} is not right:\n{e}")))
}

fn price(what: &str, dollars: f64) -> Result<Money> {
    let amount = Money::from_dollars(dollars).filter(|amount| *amount >= Money::ZERO);
    amount.ok_or_else(|| Failure(format!("{what} must be an amount of dollars that is not negative")))
}
