//! The client: what people and scripts do with a cloud from a terminal, by the commands that `tp` has and some more.
//!
//! It knows the API's bodies and nothing else of the house, so that it works with any engine that speaks the API. What it needs
//! of the machine (variables, directories, terminals) is given to it as [`Surroundings`]. It never runs a command that a server
//! sends. Start reading at [`run`].

mod accepted;
mod addresses;
mod admin;
mod answers;
mod attachments;
mod clusters;
mod commands;
mod connections;
mod cp;
mod engine;
mod failure;
mod files;
mod host;
mod interrupts;
mod jobs;
mod known_hosts;
mod limits;
mod login;
mod logins;
mod machines;
mod object_storage;
mod output;
mod paths;
mod patience;
mod profiles;
mod prompts;
mod public_keys;
mod requests;
mod sections;
mod settings;
mod show;
mod ssh;
mod ssh_config;
mod storage;
mod surroundings;
mod tables;
mod transfers;
mod trial;
mod users;
mod waits;

pub use admin::{Command as Admin, Key as AdminKey};
pub use commands::{Commands, Options};
pub use failure::{ExitCodes, Failure};
pub use surroundings::Surroundings;
pub use trial::{Means, Step, trial};

/// What administrators do over the API. Beside it stands what is done at the database itself, which is not the client's.
#[derive(Debug)]
pub enum Administration {
    /// Users, organizations, grants and events.
    All(Admin),
    /// API keys.
    Keys(AdminKey),
}

/// Carries out a command; the code that the program ends with.
pub async fn run(command: Commands, options: Options, surroundings: Surroundings) -> std::process::ExitCode {
    let is_json = options.json;
    match commands::run(command, options, &surroundings).await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(failure) => {
            output::complain(&failure, is_json);
            std::process::ExitCode::from(failure.code())
        }
    }
}
