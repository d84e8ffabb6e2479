//! The configuration of the engine. The TOML file is read first; environment variables and then options override it.

mod capacity;
mod gpus;
mod images;
mod instances;
mod jobs;
mod limits;
mod line;
mod network;
mod object_storage;
mod options;
mod organization;
mod public;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tarn_server::TrustedNetwork;
use tarn_store::Database;

use crate::failure::{Failure, Result};
use capacity::{AfterRebootName, Capacity, PriceList, Storage, TypeDefinition};
use gpus::Gpus;
use images::Images;
use instances::Instances;
use jobs::Jobs;
use limits::{DefaultLimits, RateLimit, Requests};
use line::Line;
use network::Network;
use object_storage::ObjectStorage;
use organization::Organization;

pub(crate) use object_storage::S3Listen;
pub(crate) use options::{DataOptions, DriverName, LogFormat, ServeOptions};
pub(crate) use public::{PublicS3, PublicSsh};

/// The data directory, unless another one is given.
pub(crate) const DEFAULT_DATA: &str = "./tarn-data";

/// A process that still uses a volume after ten minutes will not stop by itself.
const MAX_GRACE_SECONDS: u64 = 600;

/// A petabyte: no instance needs a larger disk.
const MAX_DISK_GB: u64 = 1_000_000;

/// All settings. Unknown keys are refused.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) data: PathBuf,
    pub(crate) database: Option<String>,
    pub(crate) listen: SocketAddr,
    pub(crate) public_url: Option<String>,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) insecure_http: bool,
    pub(crate) trusted_proxies: Vec<TrustedNetwork>,
    pub(crate) metrics_listen: Option<SocketAddr>,
    pub(crate) ssh_listen: SocketAddr,
    pub(crate) public_ssh: Option<PublicSsh>,
    pub(crate) s3_listen: S3Listen,
    pub(crate) public_s3: Option<PublicS3>,
    pub(crate) secret_key_file: Option<PathBuf>,
    pub(crate) driver: DriverName,
    pub(crate) simulated_gpus: Option<tarn_driver::host::Simulated>,
    after_reboot: AfterRebootName,
    simulated_gpu_faults: Option<PathBuf>,
    gpus: Gpus,
    pub(crate) log_format: LogFormat,
    pub(crate) log: String,
    pub(crate) rate_limit: RateLimit,
    capacity: Capacity,
    storage: Storage,
    object_storage: ObjectStorage,
    images: Images,
    pub(crate) instances: Instances,
    pub(crate) network: Network,
    jobs: Jobs,
    requests: Requests,
    limits: DefaultLimits,
    pub(crate) organization: Organization,
    line: Line,
    prices: PriceList,
    types: Vec<TypeDefinition>,
    pub(crate) fake: tarn_driver::fake::Settings,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            data: PathBuf::from(DEFAULT_DATA),
            database: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 7070)),
            public_url: None,
            tls_cert: None,
            tls_key: None,
            insecure_http: false,
            trusted_proxies: Vec::new(),
            metrics_listen: None,
            ssh_listen: SocketAddr::from(([127, 0, 0, 1], 7022)),
            public_ssh: None,
            s3_listen: S3Listen::default(),
            public_s3: None,
            secret_key_file: None,
            driver: DriverName::default(),
            simulated_gpus: None,
            after_reboot: AfterRebootName::default(),
            simulated_gpu_faults: None,
            gpus: Gpus::default(),
            log_format: LogFormat::default(),
            log: "info".to_owned(),
            rate_limit: RateLimit::default(),
            capacity: Capacity::default(),
            storage: Storage::default(),
            object_storage: ObjectStorage::default(),
            images: Images::default(),
            instances: Instances::default(),
            network: Network::default(),
            jobs: Jobs::default(),
            requests: Requests::default(),
            limits: DefaultLimits::default(),
            organization: Organization::default(),
            line: Line::default(),
            prices: PriceList::default(),
            types: Vec::new(),
            fake: tarn_driver::fake::Settings::default(),
        }
    }
}

impl Config {
    /// Reads the file, if one is named, and applies the options.
    pub(crate) fn load(options: &ServeOptions) -> Result<Self> {
        let mut config = match &options.config {
            Some(path) => read_config_file(path)?,
            None => Config::default(),
        };
        let ServeOptions { data, listen, public_url, tls_cert, tls_key, metrics_listen, .. } = options.clone();
        config.data = data.data.unwrap_or(config.data);
        config.database = data.database.or(config.database);
        config.listen = listen.unwrap_or(config.listen);
        config.public_url = public_url.or(config.public_url);
        config.tls_cert = tls_cert.or(config.tls_cert);
        config.tls_key = tls_key.or(config.tls_key);
        config.insecure_http |= options.insecure_http;
        config.metrics_listen = metrics_listen.or(config.metrics_listen);
        config.ssh_listen = options.ssh_listen.unwrap_or(config.ssh_listen);
        config.public_ssh = options.public_ssh.clone().or(config.public_ssh);
        config.s3_listen = options.s3_listen.unwrap_or(config.s3_listen);
        config.public_s3 = options.public_s3.clone().or(config.public_s3);
        config.secret_key_file = options.secret_key_file.clone().or(config.secret_key_file);
        config.driver = options.driver.unwrap_or(config.driver);
        config.simulated_gpus = options.simulated_gpus.clone().or(config.simulated_gpus);
        config.simulated_gpu_faults = options.simulated_gpu_faults.clone().or(config.simulated_gpu_faults);
        config.rate_limit.per_second = options.rate_limit_per_second.unwrap_or(config.rate_limit.per_second);
        config.limits.waiting = options.limits_waiting.unwrap_or(config.limits.waiting);
        config.log_format = options.log_format.unwrap_or(config.log_format);
        config.log = options.log.clone().unwrap_or(config.log);
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<()> {
        let sane = |what: &str, value: f64| {
            if value.is_finite() && value > 0.0 && value <= 1e6 {
                Ok(())
            } else {
                Err(Failure(format!("{what} must be a number above 0 and at most 1000000, not {value}")))
            }
        };
        sane("capacity.cpu_overcommit", self.capacity.cpu_overcommit)?;
        sane("storage.overcommit", self.storage.overcommit)?;
        sane("capacity.cpus", self.capacity.cpus.unwrap_or(1.0))?;
        if self.capacity.instance_disk_gb.is_some_and(|gb| !(1..=MAX_DISK_GB).contains(&gb)) {
            return Err(Failure(format!("capacity.instance_disk_gb must be at least 1 and at most {MAX_DISK_GB}")));
        }
        if self.storage.detach_grace_seconds > MAX_GRACE_SECONDS {
            return Err(Failure(format!("storage.detach_grace_seconds must be at most {MAX_GRACE_SECONDS}")));
        }
        self.gpus.check()?;
        self.requests.check()?;
        self.limits.check()?;
        self.line.check()?;
        self.object_storage.check()?;
        self.images.check()?;
        self.instances.check()?;
        self.jobs.check()?;
        if self.rate_limit.burst == 0 {
            return Err(Failure("rate_limit.burst must be at least 1".to_owned()));
        }
        match (&self.tls_cert, &self.tls_key) {
            (Some(_), None) | (None, Some(_)) => Err(Failure("HTTPS needs both --tls-cert and --tls-key".to_owned())),
            _ => Ok(()),
        }
    }

    /// The listeners that speak plain HTTP on an address that other hosts can reach, with their options.
    pub(crate) fn unencrypted_listeners(&self) -> Vec<(&'static str, SocketAddr)> {
        let s3 = match self.s3_listen {
            S3Listen::Nowhere => None,
            S3Listen::At(listen) => Some(("--s3-listen", listen)),
        };
        let listeners = std::iter::once(("--listen", self.listen)).chain(s3);
        listeners.filter(|(_, listen)| self.tls_cert.is_none() && !listen.ip().is_loopback()).collect()
    }

    /// The database.
    pub(crate) fn database(&self) -> Result<Database> {
        parse_database(&self.data, self.database.as_deref())
    }
}

/// The data directory and the database of a configuration file, if one is given, and of options.
pub(crate) fn locate_database(config: Option<&Path>, options: &DataOptions) -> Result<(PathBuf, Database)> {
    let config = config.map(read_config_file).transpose()?.unwrap_or_default();
    let directory = options.data.clone().unwrap_or(config.data);
    let database = parse_database(&directory, options.database.as_deref().or(config.database.as_deref()))?;
    Ok((directory, database))
}

/// Parses the `--database` option.
pub(crate) fn parse_database(data: &Path, url: Option<&str>) -> Result<Database> {
    match url {
        None => Ok(Database::Sqlite(data.join("tarn.db"))),
        Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
            Ok(Database::Postgres(url.to_owned()))
        }
        Some(_) => Err(Failure("--database must be a postgres:// URL; leave it out to use SQLite".to_owned())),
    }
}

fn read_config_file(path: &Path) -> Result<Config> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| Failure::with_cause(format!("cannot read {shown}"), e))?;
    toml::from_str(&text).map_err(|e| Failure(format!("{shown} is not valid:\n{e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_model::capacity::Inventory;
    use tarn_model::catalogue::Prices;

    fn parsed(text: &str) -> std::result::Result<Config, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn unknown_keys_are_refused() {
        assert_eq!(parsed("").unwrap().listen, Config::default().listen);
        for text in [
            "lisen = '1.2.3.4:5'",
            "[organization]\nmembers_can_destroy = true",
            "[capacity]\ncpu = 1",
            "[[types]]\nname = 'x'\ncpus = 1\nmemory_mib = 1\nram = 2",
        ] {
            assert!(parsed(text).unwrap_err().to_string().contains("unknown field"), "{text}");
        }
    }

    #[test]
    fn invalid_values_are_refused() {
        for text in [
            "[capacity]\ncpu_overcommit = 0.0",
            "[capacity]\ncpus = -1.0",
            "[storage]\novercommit = nan",
            "[capacity]\ninstance_disk_gb = 0",
            "[storage]\ndetach_grace_seconds = 601",
            "[requests]\nlease_seconds = 0",
            "[object_storage]\nquota_gb = 0",
            "[object_storage]\nabandoned_upload_days = 0",
            "[object_storage]\nlegacy_keys_until = 'next year'",
            "[instances]\nlxcfs = 'lxcfs'",
            "[jobs]\nkeep_days = 0",
            "[limits]\ncpus = -1.0",
            "[limits]\ncpus = inf",
            "[limits]\nwaiting = 1000000001",
            "[line]\nreserve_after_seconds = 0",
            "[line]\nreserve_for_seconds = 0",
            "[line]\nreserve_for_seconds = 31536001",
            "[limits]\njob_gb = -1.0",
            "[limits]\njob_gb = nan",
            "tls_cert = 'a.pem'",
        ] {
            assert!(parsed(text).unwrap().check().is_err(), "{text}");
        }
        assert!(parsed("[organization]\nmembers_may_destroy = 'yes'").is_err());
    }

    #[test]
    fn unencrypted_listeners_are_found() {
        let found = |text: &str| parsed(text).unwrap().unencrypted_listeners().len();
        assert_eq!((found(""), found("listen = '127.1.2.3:1'\ns3_listen = '[::1]:2'")), (0, 0));
        assert_eq!((found("listen = '0.0.0.0:1'"), found("listen = '[::]:1'\ns3_listen = '192.0.2.1:2'")), (1, 2));
        assert_eq!(found("listen = '0.0.0.0:1'\ns3_listen = '192.0.2.1:2'\ntls_cert = 'a'\ntls_key = 'b'"), 0);
        assert_eq!(found("s3_listen = 'none'"), 0);
    }

    #[test]
    fn trusted_proxies_are_checked() {
        let config = parsed("trusted_proxies = ['10.0.0.0/8', '192.0.2.7', '2001:db8::/32']").unwrap();
        let shown: Vec<String> = config.trusted_proxies.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32"]);
        for wrong in ["'proxy'", "'10.0.0.1/8'", "7"] {
            assert!(parsed(&format!("trusted_proxies = [{wrong}]")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn pool_is_overcommitted_once() {
        let config =
            parsed("[capacity]\nstorage_gb = 50\n[storage]\novercommit = 2.0\ndetach_grace_seconds = 0").unwrap();
        config.check().unwrap();
        assert_eq!(config.inventory(Vec::new()).storage_bytes, 50_000_000_000);
        let settings = config.settings();
        assert_eq!((settings.storage_cap_gb, settings.storage_overcommit), (Some(50), 2.0));
        assert_eq!(settings.detach_grace, std::time::Duration::ZERO);
        let plain = parsed("").unwrap();
        assert_eq!(
            (plain.inventory(Vec::new()).storage_bytes, plain.settings().storage_cap_gb),
            (10_000_000_000_000, None)
        );
    }

    #[test]
    fn limits_and_after_reboot_are_passed_on() {
        let config = parsed("after_reboot = 'leave'\n[limits]\ngpus = 0\ncpus = 2.5\njob_gb = 0.5").unwrap();
        config.check().unwrap();
        let settings = config.settings();
        assert_eq!(
            (settings.limits.gpus, settings.limits.cpu_milli, settings.limits.instances),
            (Some(0), Some(2500), None)
        );
        assert_eq!(settings.after_reboot, tarn_control::AfterReboot::Leave);
        let usual = tarn_model::limits::Limits { waiting: Some(16), ..Default::default() };
        assert_eq!(parsed("").unwrap().settings().limits, usual);
        assert!(parsed("after_reboot = 'stop'").is_err());
    }

    #[test]
    fn types_may_have_fractions() {
        let config = parsed("[[types]]\nname = 'tiny'\ncpus = 0.1\nmemory_mib = 64").unwrap();
        let host = Inventory { cpu_milli: 2000, memory_bytes: 1 << 30, ..Inventory::default() };
        let catalogue = config.catalogue(&host, &Prices::default()).unwrap();
        let tiny = catalogue.find("tiny").unwrap();
        assert_eq!((tiny.shape.cpu_milli, tiny.shape.memory_bytes), (100, 64 << 20));
        for wrong in ["cpus = 0.0\nmemory_mib = 64", "cpus = 1\nmemory_mib = 0", "cpus = 1\nmemory_mib = 1\ngpus = 1"] {
            let config = parsed(&format!("[[types]]\nname = 'odd'\n{wrong}")).unwrap();
            assert!(config.catalogue(&host, &Prices::default()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn database_url_is_checked() {
        assert!(matches!(parse_database(Path::new("d"), None), Ok(Database::Sqlite(_))));
        assert!(matches!(parse_database(Path::new("d"), Some("postgres://a/b")), Ok(Database::Postgres(_))));
        assert!(parse_database(Path::new("d"), Some("mysql://a:secret@b/c")).is_err_and(|e| !e.0.contains("secret")));
    }
}
