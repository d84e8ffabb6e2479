//! The commands and their options: one module for each noun, and here the list of them.

mod accepted;
pub(crate) mod admin;
mod attachments;
mod clusters;
mod display;
pub(crate) mod jobs;
mod key_proofs;
mod login;
mod object_storage;
pub(crate) mod request_wait;
mod requests;
mod ssh;
mod storage;
mod users;

use clap::{Args, Subcommand};

use crate::AdminCommand;
use crate::environment::Environment;
use crate::failure::Result;
use crate::settings::Settings;
use crate::terminal::interrupts::Interrupts;
use crate::transport::api_client::ApiClient;

/// The options of every command.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Print the response of the engine as JSON
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub json: bool,
    /// Never ask; commands that would ask for confirmation go ahead
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub no_input: bool,
    /// The URL of the engine [env: TENSORPOOL_ENGINE] [default: http://127.0.0.1:7070]
    #[arg(long, global = true, value_name = "URL", help_heading = "Everywhere")]
    pub engine: Option<String>,
    /// The profile to use, as saved by `tarn login` [env: TARN_PROFILE]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Everywhere")]
    pub profile: Option<String>,
}

/// The commands of the client.
#[derive(Debug, Subcommand)]
pub enum Commands {
    /// Manage clusters of instances
    #[command(subcommand)]
    Cluster(clusters::Command),
    /// Manage storage volumes, which outlive clusters
    #[command(subcommand)]
    Storage(storage::Command),
    /// Manage object storage (S3)
    #[command(subcommand)]
    ObjectStorage(object_storage::Command),
    /// Run jobs on clusters
    #[command(subcommand)]
    Job(jobs::Command),
    /// Show the requests that the engine works on, and those it has finished
    #[command(subcommand)]
    Request(requests::Command),
    /// Show your account and manage your SSH keys
    Me(users::Me),
    /// Log in to an instance, or run a command on it
    Ssh(ssh::Ssh),
    /// Copy files to and from instances
    Cp(ssh::copy::Copy),
    /// Write an SSH configuration, so that ssh, scp, rsync and editors find all instances by name
    SshConfig(ssh::config::SshConfig),
    /// Save the API key of an engine
    Login(login::Login),
    /// `tarn admin`, which the binary parses.
    #[command(skip)]
    Admin(AdminCommand),
}

/// What every command needs to run.
pub(crate) struct Context<'a> {
    pub(crate) api: ApiClient,
    pub(crate) options: &'a Options,
    pub(crate) environment: &'a Environment,
    pub(crate) interrupts: Interrupts,
}

impl Context<'_> {
    /// Whether progress and notes are left out, because no person reads standard error.
    pub(crate) fn is_silent(&self) -> bool {
        !self.environment.has_errors || self.options.json
    }

    /// Whether the client may ask the user a question.
    pub(crate) fn may_ask(&self) -> bool {
        self.environment.has_input && self.environment.has_errors && !self.options.no_input && !self.options.json
    }
}

/// Runs a command.
pub(crate) async fn run_command(command: Commands, options: Options, environment: &Environment) -> Result<()> {
    let interrupts = Interrupts::listen()?;
    let command = match command {
        Commands::Login(login) => return login::run_login(login, &options, environment, interrupts).await,
        command => command,
    };
    let is_silent = !environment.has_errors || options.json;
    let api = ApiClient::new(Settings::resolve(&options, environment)?, interrupts.clone(), is_silent)?;
    let ctx = Context { api, options: &options, environment, interrupts };
    match command {
        Commands::Cluster(command) => clusters::run_cluster_command(&ctx, command).await,
        Commands::Storage(command) => storage::run_storage_command(&ctx, command).await,
        Commands::ObjectStorage(command) => object_storage::run_object_storage_command(&ctx, command).await,
        Commands::Request(command) => requests::run_request_command(&ctx, command).await,
        Commands::Me(me) => users::run_me_command(&ctx, me).await,
        Commands::Job(command) => jobs::run_job_command(&ctx, command).await,
        Commands::Cp(cp) => ssh::copy::run_copy(&ctx, cp).await,
        Commands::SshConfig(options) => ssh::config::run_ssh_config(&ctx, options).await,
        Commands::Ssh(ssh) => ssh::run_ssh(&ctx, ssh).await,
        Commands::Admin(AdminCommand::All(command)) => admin::run_admin_command(&ctx, command).await,
        Commands::Admin(AdminCommand::Keys(key)) => admin::run_key_command(&ctx, key).await,
        Commands::Login(_) => unreachable!("handled above"),
    }
}
