//! The options on the command line and in the environment.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::object_storage::S3Listen;
use super::public::{PublicS3, PublicSsh};

/// The options that locate the data.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DataOptions {
    /// Data directory [default: ./tarn-data]
    #[arg(long, env = "TARN_DATA", value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// PostgreSQL database, as postgres://user:password@host/database [default: SQLite in the data directory]
    #[arg(long, env = "TARN_DATABASE", value_name = "URL", hide_env_values = true)]
    pub(crate) database: Option<String>,
}

/// Options of `tarn serve`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ServeOptions {
    /// Configuration file in TOML; see docs/operating/configuration.md
    #[arg(long, env = "TARN_CONFIG", value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) data: DataOptions,
    /// Address of the API [default: 127.0.0.1:7070]
    #[arg(long, env = "TARN_LISTEN", value_name = "ADDR")]
    pub(super) listen: Option<SocketAddr>,
    /// URL of the API that clients are told [default: from the listen address]
    #[arg(long, env = "TARN_PUBLIC_URL", value_name = "URL")]
    pub(super) public_url: Option<String>,
    /// Certificate chain in PEM, for HTTPS
    #[arg(long, env = "TARN_TLS_CERT", value_name = "FILE")]
    pub(super) tls_cert: Option<PathBuf>,
    /// Private key in PEM, for HTTPS
    #[arg(long, env = "TARN_TLS_KEY", value_name = "FILE")]
    pub(super) tls_key: Option<PathBuf>,
    /// Allow plain HTTP on addresses that other hosts can reach, for example behind a proxy that terminates TLS
    #[arg(long, env = "TARN_INSECURE_HTTP")]
    pub(super) insecure_http: bool,
    /// Address of the Prometheus metrics [default: none are served]
    #[arg(long, env = "TARN_METRICS_LISTEN", value_name = "ADDR")]
    pub(super) metrics_listen: Option<SocketAddr>,
    /// Address of the SSH gateway to the instances [default: 127.0.0.1:7022]
    #[arg(long, env = "TARN_SSH_LISTEN", value_name = "ADDR")]
    pub(super) ssh_listen: Option<SocketAddr>,
    /// HOST or HOST:PORT of the SSH gateway that clients are told [default: from the listen address]
    #[arg(long, env = "TARN_PUBLIC_SSH", value_name = "HOST[:PORT]")]
    pub(super) public_ssh: Option<PublicSsh>,
    /// Address of object storage (S3); none switches it off [default: 127.0.0.1:7071]
    #[arg(long, env = "TARN_S3_LISTEN", value_name = "ADDR|none")]
    pub(super) s3_listen: Option<S3Listen>,
    /// URL of S3 that clients are told; its host is also the domain of buckets [default: from the listen address]
    #[arg(long, env = "TARN_PUBLIC_S3", value_name = "URL")]
    pub(super) public_s3: Option<PublicS3>,
    /// File with the master key, from which SSH host keys and S3 secrets are derived [default: secret.key in the data
    /// directory]
    #[arg(long, env = "TARN_SECRET_KEY_FILE", value_name = "FILE")]
    pub(super) secret_key_file: Option<PathBuf>,
    /// Driver that creates instances [default: local]
    #[arg(long, env = "TARN_DRIVER", value_enum)]
    pub(super) driver: Option<DriverName>,
    /// Simulated GPUs for trials, such as 8xH100 or 8xH100,2xL40S
    #[arg(long, env = "TARN_SIMULATED_GPUS", value_name = "GPUS")]
    pub(super) simulated_gpus: Option<tarn_driver::host::Simulated>,
    /// TOML script of faults of the simulated GPUs, for trials; read again when it changes
    #[arg(long, env = "TARN_SIMULATED_GPU_FAULTS", value_name = "FILE")]
    pub(super) simulated_gpu_faults: Option<PathBuf>,
    /// Maximum calls per second for each API key; 0 means no limit [default: 50]
    #[arg(long, env = "TARN_RATE_LIMIT_PER_SECOND", value_name = "N")]
    pub(super) rate_limit_per_second: Option<u32>,
    /// Maximum number of clusters of an organization that wait for capacity; 0 means no limit [default: 16]
    #[arg(long, env = "TARN_LIMITS_WAITING", value_name = "N")]
    pub(super) limits_waiting: Option<u64>,
    /// Format of log lines [default: text]
    #[arg(long, env = "TARN_LOG_FORMAT", value_enum)]
    pub(super) log_format: Option<LogFormat>,
    /// Log filter, such as info or tarn_server=debug [default: info]
    #[arg(long, env = "TARN_LOG", value_name = "FILTER")]
    pub(super) log: Option<String>,
}

impl ServeOptions {
    /// Options that only locate an installation.
    pub(crate) fn of_installation(
        config: Option<PathBuf>,
        data: DataOptions,
        secret_key_file: Option<PathBuf>,
    ) -> ServeOptions {
        ServeOptions { config, data, secret_key_file, ..ServeOptions::default() }
    }
}

/// The driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DriverName {
    /// Isolated Linux environments on this host; needs root
    #[default]
    Local,
    /// Simulated instances and volumes, for trials and tests
    Fake,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}
