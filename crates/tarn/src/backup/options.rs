//! The options of `tarn admin backup` and `tarn restore`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::place::location::Location;
use crate::config::{Config, DEFAULT_DATA, DataOptions, ServeOptions};
use crate::failure::{Failure, Result};
use crate::process_environment::variable;

/// The variable with the passphrase. It is no option: arguments are visible to other users of the host.
const PASSPHRASE: &str = "TARN_BACKUP_PASSPHRASE";

/// The options that locate an installation.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct InstallationOptions {
    /// Configuration file of the engine
    #[arg(long, env = "TARN_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) data: DataOptions,
    /// File with the master key [default: secret.key in the data directory]
    #[arg(long, env = "TARN_SECRET_KEY_FILE", value_name = "FILE")]
    pub(super) secret_key_file: Option<PathBuf>,
}

impl InstallationOptions {
    /// The configuration that an engine with these options would have.
    pub(super) fn load_config(&self) -> Result<Config> {
        Config::load(&ServeOptions::of_installation(
            self.config.clone(),
            self.data.clone(),
            self.secret_key_file.clone(),
        ))
    }
}

/// The passphrase of the master key in a backup.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct PassphraseOptions {
    /// File with the passphrase that encrypts the master key in the backup [default: TARN_BACKUP_PASSPHRASE in the
    /// environment]
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

/// How a bucket is reached. Its access key is in the environment.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct S3Options {
    /// Server of s3://BUCKET/PREFIX; AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment are its access key
    /// [default: AWS]
    #[arg(long, env = "AWS_ENDPOINT_URL", value_name = "URL")]
    pub(super) s3_endpoint: Option<String>,
    /// Region of that server [default: us-east-1]
    #[arg(long, env = "AWS_REGION", value_name = "REGION")]
    pub(super) s3_region: Option<String>,
}

impl PassphraseOptions {
    /// Reads the passphrase; `None` if none is given.
    pub(super) fn read(&self) -> Result<Option<String>> {
        match &self.passphrase_file {
            Some(path) => {
                let text = std::fs::read_to_string(path);
                let text = text.map_err(|e| Failure::with_cause(format!("cannot read {}", path.display()), e))?;
                Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
            }
            None => Ok(variable(PASSPHRASE)),
        }
    }
}

/// Back up an installation, also while its engine runs
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct BackupCommand {
    #[command(subcommand)]
    command: Option<BackupSubcommand>,
    #[command(flatten)]
    create: CreateOptions,
}

#[derive(Subcommand, Clone, Debug)]
enum BackupSubcommand {
    /// Read a backup completely and report what is damaged
    Verify(VerifyOptions),
    /// List the backups of a directory or a bucket
    List(SelectOptions),
}

/// What `tarn admin backup` shall do.
pub(super) enum Action {
    Create(CreateOptions),
    Verify(VerifyOptions),
    List(SelectOptions),
}

impl BackupCommand {
    /// Which of its commands this is.
    pub(super) fn action(self) -> Action {
        match self.command {
            Some(BackupSubcommand::Verify(options)) => Action::Verify(options),
            Some(BackupSubcommand::List(options)) => Action::List(options),
            None => Action::Create(self.create),
        }
    }
}

/// Options of `tarn admin backup DIR`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CreateOptions {
    /// Directory of backups, which is created if it does not exist, or s3://BUCKET/PREFIX
    #[arg(value_name = "DIR", required = true)]
    place: Option<PathBuf>,
    #[command(flatten)]
    s3: S3Options,
    #[command(flatten)]
    pub(super) installation: InstallationOptions,
    #[command(flatten)]
    pub(super) passphrase: PassphraseOptions,
    /// Leave the master key out; keep a copy of it elsewhere
    #[arg(long, conflicts_with = "passphrase_file")]
    pub(super) without_key: bool,
    /// Also copy the volumes
    #[arg(long)]
    pub(super) volumes: bool,
    /// Remove older backups, so that this many remain
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) keep: Option<u32>,
}

impl CreateOptions {
    /// The place of backups. Without a subcommand it is a required argument.
    pub(super) fn location(&self) -> Result<Location> {
        Location::parse(self.place.as_deref().unwrap_or(Path::new(".")), &self.s3)
    }
}

/// Options that select a backup.
#[derive(Args, Clone, Debug)]
pub(crate) struct SelectOptions {
    /// Directory of backups, or s3://BUCKET/PREFIX
    #[arg(value_name = "DIR")]
    place: PathBuf,
    #[command(flatten)]
    s3: S3Options,
    /// Name of the backup [default: the newest]
    #[arg(long, value_name = "NAME")]
    pub(super) backup: Option<String>,
}

impl SelectOptions {
    /// The place of backups.
    pub(super) fn location(&self) -> Result<Location> {
        Location::parse(&self.place, &self.s3)
    }
}

/// Options of `tarn admin backup verify`.
#[derive(Args, Clone, Debug)]
pub(crate) struct VerifyOptions {
    #[command(flatten)]
    pub(super) select: SelectOptions,
    /// Data directory of the installation, in which the result is recorded if this is its last backup [default:
    /// ./tarn-data]
    #[arg(long, env = "TARN_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
}

impl VerifyOptions {
    /// The data directory in which the result is recorded.
    pub(super) fn data(&self) -> PathBuf {
        self.data.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_DATA))
    }
}

/// Options of `tarn restore`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RestoreOptions {
    #[command(flatten)]
    pub(super) select: SelectOptions,
    #[command(flatten)]
    pub(super) installation: InstallationOptions,
    #[command(flatten)]
    pub(super) passphrase: PassphraseOptions,
    /// Only try: restore into a temporary directory, examine the result, and remove it
    #[arg(long)]
    pub(super) check: bool,
    /// Use the volumes that are in the configured pool, which belonged to the former installation
    #[arg(long, conflicts_with = "check")]
    pub(super) take_over_pool: bool,
    /// Use the objects in this directory, which belonged to the former installation; object_storage.directory must name
    /// it, too
    #[arg(long, value_name = "DIR", conflicts_with = "check")]
    pub(super) take_over_objects: Option<PathBuf>,
    /// Read all objects that are taken over, and compare their checksums
    #[arg(long, requires = "take_over_objects")]
    pub(super) verify: bool,
    /// Restore what is intact of a damaged backup
    #[arg(long, conflicts_with = "check")]
    pub(super) damaged: bool,
}

impl RestoreOptions {
    /// Refuses combinations that cannot work.
    pub(super) fn check_options(&self) -> Result<()> {
        if self.installation.data.data.is_none() && !self.check {
            return Err(Failure("say where to restore to with --data; the directory must be new or empty".to_owned()));
        }
        Ok(())
    }
}
