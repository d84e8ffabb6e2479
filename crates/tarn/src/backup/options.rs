//! The options of `tarn admin backup` and `tarn restore`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use crate::config::{Config, DataOptions, ServeOptions};
use crate::failure::{Failure, Result};

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
    /// File with the passphrase that encrypts the master key in the backup
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// The passphrase itself
    #[arg(long = "passphrase", env = "TARN_BACKUP_PASSPHRASE", hide = true, hide_env_values = true)]
    passphrase: Option<String>,
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
            None => Ok(self.passphrase.clone()),
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
    Verify(SelectOptions),
    /// List the backups of a directory
    List(SelectOptions),
}

/// What `tarn admin backup` shall do.
pub(super) enum Action {
    Create(CreateOptions),
    Verify(SelectOptions),
    List(SelectOptions),
}

impl BackupCommand {
    /// Which of its commands this is.
    pub(super) fn action(self) -> Result<Action> {
        let action = match self.command {
            Some(BackupSubcommand::Verify(options)) => Action::Verify(options),
            Some(BackupSubcommand::List(options)) => Action::List(options),
            None => Action::Create(self.create),
        };
        let directory: &Path = match &action {
            Action::Create(options) => options.directory(),
            Action::Verify(options) | Action::List(options) => &options.directory,
        };
        refuse_url(directory)?;
        Ok(action)
    }
}

/// Options of `tarn admin backup DIR`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CreateOptions {
    /// Directory of backups; it is created if it does not exist
    #[arg(value_name = "DIR", required = true)]
    directory: Option<PathBuf>,
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
    /// The directory of backups. Without a subcommand it is a required argument.
    pub(super) fn directory(&self) -> &Path {
        self.directory.as_deref().unwrap_or(Path::new("."))
    }
}

/// Options that select a backup.
#[derive(Args, Clone, Debug)]
pub(crate) struct SelectOptions {
    /// Directory of backups
    #[arg(value_name = "DIR")]
    pub(super) directory: PathBuf,
    /// Name of the backup [default: the newest]
    #[arg(long, value_name = "NAME")]
    pub(super) backup: Option<String>,
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
        refuse_url(&self.select.directory)?;
        if self.installation.data.data.is_none() && !self.check {
            return Err(Failure("say where to restore to with --data; the directory must be new or empty".to_owned()));
        }
        Ok(())
    }
}

fn refuse_url(directory: &Path) -> Result<()> {
    let text = directory.to_string_lossy();
    if text.starts_with("s3://") {
        return Err(Failure(format!(
            "backups to object storage are not supported by this version: back up to a directory, and copy it to {text} \
             with a program such as rclone"
        )));
    }
    Ok(())
}
