//! The commands and their options. Each noun has a file of its own; here is only which there are.

use clap::{Args, Subcommand};

use crate::Administration;
use crate::engine::Engine;
use crate::failure::Result;
use crate::interrupts::Interrupts;
use crate::settings::Settings;
use crate::surroundings::Surroundings;
use crate::{admin, clusters, cp, jobs, login, object_storage, requests, ssh, ssh_config, storage, users};

/// What holds for every command.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Print what the engine answers, as JSON
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub json: bool,
    /// Never ask anything
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub no_input: bool,
    /// The engine to speak to [env: TENSORPOOL_ENGINE] [default: http://127.0.0.1:7070]
    #[arg(long, global = true, value_name = "URL", help_heading = "Everywhere")]
    pub engine: Option<String>,
    /// The profile that `tarn login` made [env: TARN_PROFILE]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Everywhere")]
    pub profile: Option<String>,
}

/// What the client can do.
#[derive(Debug, Subcommand)]
pub enum Commands {
    /// Clusters: machines to log in to
    #[command(subcommand)]
    Cluster(clusters::Command),
    /// Storage volumes, which outlive clusters
    #[command(subcommand)]
    Storage(storage::Command),
    /// Object storage, by S3's protocol
    #[command(subcommand)]
    ObjectStorage(object_storage::Command),
    /// Jobs: commands with files, on a cluster
    #[command(subcommand)]
    Job(jobs::Command),
    /// What the engine does for you at the moment, and did
    #[command(subcommand)]
    Request(requests::Command),
    /// Who you are, your SSH keys
    Me(users::Me),
    /// Log in to a machine, or run something there
    Ssh(ssh::Ssh),
    /// Copy files to and from machines
    Cp(cp::Cp),
    /// Let ssh, scp, rsync and editors know all machines by their names
    SshConfig(ssh_config::SshConfig),
    /// Keep the key of an engine for later
    Login(login::Login),
    /// What the binary makes of `tarn admin`.
    #[command(skip)]
    Admin(Administration),
}

/// What every command needs.
pub(crate) struct Context<'a> {
    pub(crate) engine: Engine,
    pub(crate) options: &'a Options,
    pub(crate) surroundings: &'a Surroundings,
    pub(crate) interrupts: Interrupts,
}

impl Context<'_> {
    /// Whether nobody looks at what is told beside the output.
    pub(crate) fn is_silent(&self) -> bool {
        !self.surroundings.has_errors || self.options.json
    }

    /// Whether somebody can be asked.
    pub(crate) fn may_ask(&self) -> bool {
        self.surroundings.has_input && self.surroundings.has_errors && !self.options.no_input && !self.options.json
    }
}

/// Carries out a command.
pub(crate) async fn run(command: Commands, options: Options, surroundings: &Surroundings) -> Result<()> {
    let interrupts = Interrupts::listen()?;
    let command = match command {
        Commands::Login(login) => return login::run(login, &options, surroundings, interrupts).await,
        command => command,
    };
    let is_silent = !surroundings.has_errors || options.json;
    let engine = Engine::new(Settings::find(&options, surroundings)?, interrupts.clone(), is_silent)?;
    let ctx = Context { engine, options: &options, surroundings, interrupts };
    match command {
        Commands::Cluster(command) => clusters::run(&ctx, command).await,
        Commands::Storage(command) => storage::run(&ctx, command).await,
        Commands::ObjectStorage(command) => object_storage::run(&ctx, command).await,
        Commands::Request(command) => requests::run(&ctx, command).await,
        Commands::Me(me) => users::run(&ctx, me).await,
        Commands::Job(command) => jobs::run(&ctx, command).await,
        Commands::Cp(cp) => cp::run(&ctx, cp).await,
        Commands::SshConfig(options) => ssh_config::run(&ctx, options).await,
        Commands::Ssh(ssh) => ssh::run(&ctx, ssh).await,
        Commands::Admin(Administration::All(command)) => admin::run(&ctx, command).await,
        Commands::Admin(Administration::Keys(key)) => admin::key(&ctx, key).await,
        Commands::Login(_) => unreachable!("it was taken out above"),
    }
}
