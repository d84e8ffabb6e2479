//! The commands and their options.

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use tarn_cli::Administration;

use crate::config::{Config, DataOptions, ServeOptions};
use crate::doctor::DoctorOptions;
use crate::failure::{Failure, Result};
use crate::{admin, doctor, serve, surroundings};

/// A GPU cloud on machines you own, speaking the TensorPool API.
#[derive(Parser)]
#[command(version, about, arg_required_else_help = true, disable_version_flag = true)]
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
    /// Run the cloud
    Serve(Box<ServeOptions>),
    /// Say whether this machine and the engine on it are well, and what to do where they are not
    Doctor(Box<DoctorOptions>),
    /// Administer an engine
    Admin {
        #[command(subcommand)]
        command: Admin,
    },
    /// Print the API's description
    Openapi,
    /// Print what lets a shell complete the commands
    ///
    /// For bash: tarn completion bash > ~/.local/share/bash-completion/completions/tarn
    Completion {
        /// The shell
        shell: Shell,
    },
    #[command(flatten)]
    Client(tarn_cli::Commands),
}

#[derive(Subcommand)]
enum Admin {
    /// API keys
    Key {
        #[command(subcommand)]
        command: Key,
    },
    #[command(flatten)]
    Remote(tarn_cli::Admin),
}

#[derive(Subcommand)]
enum Key {
    /// Make a new key when the old one is lost; all old keys of the administrator end
    Reset(DataOptions),
    #[command(flatten)]
    Remote(tarn_cli::AdminKey),
}

/// Runs a command to its end; the code that the program ends with.
pub(crate) fn run(cli: Cli) -> Result<ExitCode> {
    let client = match cli.command {
        Command::Openapi => return openapi().map(|()| ExitCode::SUCCESS),
        Command::Completion { shell } => return completion(shell).map(|()| ExitCode::SUCCESS),
        Command::Serve(options) => {
            return runtime()?.block_on(serve::serve(Config::load(&options)?)).map(|()| ExitCode::SUCCESS);
        }
        Command::Doctor(options) => {
            let runtime = runtime()?;
            let code = runtime.block_on(doctor::run(*options, cli.options, surroundings::find()));
            // What hangs is told by now, and must not keep the program from its end.
            runtime.shutdown_background();
            return Ok(code);
        }
        Command::Admin { command: Admin::Key { command: Key::Reset(options) } } => {
            return runtime()?.block_on(admin::reset_key(&options)).map(|()| ExitCode::SUCCESS);
        }
        Command::Admin { command: Admin::Key { command: Key::Remote(key) } } => {
            tarn_cli::Commands::Admin(Administration::Keys(key))
        }
        Command::Admin { command: Admin::Remote(command) } => tarn_cli::Commands::Admin(Administration::All(command)),
        Command::Client(command) => command,
    };
    // One thread is enough for it, and is there sooner.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::doing("cannot start", e))?;
    let code = runtime.block_on(tarn_cli::run(client, cli.options, surroundings::find()));
    // A thread may still wait for a line that somebody does not want to type any more.
    runtime.shutdown_background();
    Ok(code)
}

fn openapi() -> Result<()> {
    let text = serde_json::to_string_pretty(&tarn_server::openapi()).map_err(|e| Failure::doing("openapi", e))?;
    print(format!("{text}\n").as_bytes())
}

fn completion(shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), surroundings::own_name(), &mut script);
    print(&script)
}

fn print(text: &[u8]) -> Result<()> {
    // Whoever reads only the beginning has what he wants.
    match std::io::stdout().write_all(text) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::doing("cannot write", e)),
        _ => Ok(()),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::doing("cannot start threads", e))
}
