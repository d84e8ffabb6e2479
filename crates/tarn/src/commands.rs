//! The commands of the binary: those of the operator, and those of the client. Start reading at [`run_cli`].

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use tarn_cli::AdminCommand;

use crate::backup::{BackupCommand, RestoreOptions};
use crate::config::{Config, DataOptions, ServeOptions};
use crate::doctor::DoctorOptions;
use crate::failure::{Failure, Result};
use crate::migrate::{self, MigrateOptions};
use crate::{admin, backup, doctor, process_environment, serve};

/// A GPU cloud on your own hosts, with the TensorPool API.
#[derive(Parser)]
#[command(version = env!("TARN_VERSION"), about, arg_required_else_help = true, disable_version_flag = true)]
pub(crate) struct Cli {
    /// Print the version
    #[arg(short = 'v', short_alias = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
    #[command(flatten)]
    options: tarn_cli::Options,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the engine
    Serve {
        /// Check the configuration and exit, without touching the data
        #[arg(long)]
        check: bool,
        #[command(flatten)]
        options: Box<ServeOptions>,
    },
    /// Check this host and the engine on it, and say how to fix what is wrong
    Doctor(Box<DoctorOptions>),
    /// Administer an engine
    Admin {
        #[command(subcommand)]
        command: Admin,
    },
    /// Restore a backup as a new installation
    Restore(Box<RestoreOptions>),
    /// Print the OpenAPI description of the API
    Openapi,
    /// Print a script that lets a shell complete the commands
    ///
    /// For bash: tarn completion bash > ~/.local/share/bash-completion/completions/tarn
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Write the man pages of all commands into a directory, for packages
    #[command(hide = true)]
    Manual {
        /// The directory
        directory: PathBuf,
    },
    #[command(flatten)]
    Client(tarn_cli::Commands),
}

#[derive(Subcommand)]
enum Admin {
    /// Manage API keys
    Key {
        #[command(subcommand)]
        command: Key,
    },
    /// Back up an installation, also while its engine runs
    Backup(Box<BackupCommand>),
    /// Copy the database of a stopped engine into another one, from SQLite to PostgreSQL or back
    Migrate(MigrateOptions),
    /// Manage the driver that creates instances
    Driver {
        #[command(subcommand)]
        command: DriverCommand,
    },
    #[command(flatten)]
    Remote(tarn_cli::Admin),
}

#[derive(Subcommand)]
enum Key {
    /// Create a new API key for the administrator and revoke all old ones
    Reset(DataOptions),
    #[command(flatten)]
    Remote(tarn_cli::AdminKey),
}

#[derive(Subcommand)]
enum DriverCommand {
    /// Give a PostgreSQL database to the local driver of this data directory, after that of the database was lost
    ///
    /// The engine of the lost one must have stopped. The next engine that starts here marks what this host does not
    /// have as failed. A data directory that was moved needs no command.
    Adopt(DataOptions),
}

/// Runs a command, and returns the exit code of the program.
pub(crate) fn run_cli(cli: Cli) -> Result<ExitCode> {
    let client = match cli.command {
        Command::Openapi => return print_openapi().map(|()| ExitCode::SUCCESS),
        Command::Completion { shell } => return print_completion(shell).map(|()| ExitCode::SUCCESS),
        Command::Manual { directory } => {
            let written = clap_mangen::generate_to(Cli::command(), directory);
            return written
                .map(|()| ExitCode::SUCCESS)
                .map_err(|e| Failure::with_cause("cannot write the man pages", e));
        }
        Command::Serve { check: true, options } => {
            let valid = serve::startup::check::check_configuration(&Config::load(&options)?)?;
            return write_stdout(valid.as_bytes()).map(|()| ExitCode::SUCCESS);
        }
        Command::Serve { check: false, options } => {
            let runtime = build_runtime()?;
            let outcome = runtime.block_on(serve::run_engine(Config::load(&options)?));
            // A task that blocks a thread must not keep the program from ending.
            runtime.shutdown_timeout(serve::TASKS_TIMEOUT);
            return outcome.map(|()| ExitCode::SUCCESS);
        }
        Command::Doctor(options) => {
            let runtime = build_runtime()?;
            let code =
                runtime.block_on(doctor::run_doctor(*options, cli.options, process_environment::read_environment()));
            // A check that hangs is reported by now, and must not keep the program from ending.
            runtime.shutdown_background();
            return Ok(code);
        }
        Command::Admin { command: Admin::Key { command: Key::Reset(options) } } => {
            return build_runtime()?.block_on(admin::reset_admin_key(&options)).map(|()| ExitCode::SUCCESS);
        }
        Command::Admin { command: Admin::Backup(command) } => {
            return build_runtime()?.block_on(backup::run_backup(*command, cli.options.json));
        }
        Command::Restore(options) => {
            return build_runtime()?.block_on(backup::run_restore(*options, cli.options.json));
        }
        Command::Admin { command: Admin::Migrate(options) } => {
            return build_runtime()?.block_on(migrate::migrate_database(&options)).map(|()| ExitCode::SUCCESS);
        }
        Command::Admin { command: Admin::Driver { command: DriverCommand::Adopt(options) } } => {
            return build_runtime()?.block_on(admin::adopt_database(&options)).map(|()| ExitCode::SUCCESS);
        }
        Command::Admin { command: Admin::Key { command: Key::Remote(key) } } => {
            tarn_cli::Commands::Admin(AdminCommand::Keys(key))
        }
        Command::Admin { command: Admin::Remote(command) } => tarn_cli::Commands::Admin(AdminCommand::All(command)),
        Command::Client(command) => command,
    };
    // The client needs only one thread, and starts faster with it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::with_cause("cannot start the runtime", e))?;
    let code = runtime.block_on(tarn_cli::run_client(client, cli.options, process_environment::read_environment()));
    // A thread may still wait for a line on standard input.
    runtime.shutdown_background();
    Ok(code)
}

fn print_openapi() -> Result<()> {
    let text = serde_json::to_string_pretty(&tarn_server::openapi())
        .map_err(|e| Failure::with_cause("cannot write the OpenAPI description", e))?;
    write_stdout(format!("{text}\n").as_bytes())
}

fn print_completion(shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), process_environment::program_name(), &mut script);
    write_stdout(&script)
}

fn write_stdout(text: &[u8]) -> Result<()> {
    // A closed pipe is not an error: its reader wanted only the beginning.
    match std::io::stdout().write_all(text) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::with_cause("cannot write to standard output", e))
        }
        _ => Ok(()),
    }
}

fn build_runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::with_cause("cannot start threads", e))
}
