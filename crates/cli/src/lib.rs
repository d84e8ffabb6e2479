//! The client: the commands of `tp`, and some more, for people and scripts at a terminal.
//!
//! It knows the bodies of the API and no other crate of Tarn, so it works with any engine that speaks the API.
//! Environment variables, directories and terminals reach it as [`Environment`]. It never runs a command that a server
//! sends. Start reading at [`run_client`]; `commands` has one module for each command, `transport` speaks HTTP, and
//! `terminal` prints and asks.

mod commands;
mod environment;
mod failure;
mod files;
mod settings;
mod terminal;
mod transport;
mod trial;

pub use commands::admin::{Command as Admin, Key as AdminKey};
pub use commands::{Commands, Options};
pub use environment::Environment;
pub use failure::{ExitCodes, Failure};
pub use trial::{TrialOptions, TrialStep, run_trial};

use terminal::output;

/// The part of `tarn admin` that uses the API. The binary adds the commands that open the database itself.
#[derive(Debug)]
pub enum AdminCommand {
    /// Users, organizations, grants and events.
    All(Admin),
    /// API keys.
    Keys(AdminKey),
}

/// Runs a command and returns the exit code of the program.
pub async fn run_client(command: Commands, options: Options, environment: Environment) -> std::process::ExitCode {
    let is_json = options.json;
    match commands::run_command(command, options, &environment).await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(failure) => {
            output::print_failure(&failure, is_json);
            std::process::ExitCode::from(failure.code())
        }
    }
}
