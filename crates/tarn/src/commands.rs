//! The commands and their options.

use std::io::Write;

use clap::{Parser, Subcommand};

use crate::config::{Config, DataOptions, ServeOptions};
use crate::failure::{Failure, Result};
use crate::{admin, serve};

/// A GPU cloud on machines you own, speaking the TensorPool API.
#[derive(Parser)]
#[command(version, about, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the cloud
    Serve(Box<ServeOptions>),
    /// Administer this engine at its database
    Admin {
        #[command(subcommand)]
        command: Admin,
    },
    /// Print the API's description
    Openapi,
}

#[derive(Subcommand)]
enum Admin {
    /// The administrator's API key
    Key {
        #[command(subcommand)]
        command: Key,
    },
}

#[derive(Subcommand)]
enum Key {
    /// Make a new key when the old one is lost; all old keys of the administrator end
    Reset(DataOptions),
}

/// Runs a command to its end.
pub(crate) fn run(cli: Cli) -> Result<()> {
    match cli.command {
        Command::Openapi => {
            let text =
                serde_json::to_string_pretty(&tarn_server::openapi()).map_err(|e| Failure::doing("openapi", e))?;
            // Whoever reads only the beginning has what he wants.
            match writeln!(std::io::stdout(), "{text}") {
                Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::doing("cannot write", e)),
                _ => Ok(()),
            }
        }
        Command::Serve(options) => runtime()?.block_on(serve::serve(Config::load(&options)?)),
        Command::Admin { command: Admin::Key { command: Key::Reset(options) } } => {
            runtime()?.block_on(admin::reset_key(&options))
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::doing("cannot start threads", e))
}
