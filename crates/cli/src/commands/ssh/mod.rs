//! `tarn ssh`: replaces itself with `ssh`, with options that this client builds, and the other commands around SSH.

pub(super) mod config;
pub(super) mod copy;
pub(super) mod instances;
mod known_hosts;
mod target;

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::commands::Context;
use crate::failure::{Failure, Result};
use crate::terminal::output;
use target::SshTarget;

#[derive(Args, Debug)]
pub struct Ssh {
    /// A cluster or an instance, by name or ID (with --json it is described, without a login)
    name: String,
    /// A command to run there, or more options for ssh
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub(crate) async fn run_ssh(ctx: &Context<'_>, ssh: Ssh) -> Result<()> {
    if ctx.options.json {
        return output::print_json(&instances::find_instance(ctx, &ssh.name).await?);
    }
    let target = instances::find_ssh_target(ctx, &ssh.name).await?;
    exec_ssh(ctx, &target, &ssh.arguments)
}

/// Replaces this process with `ssh`. Returns only if that fails.
pub(crate) fn exec_ssh(ctx: &Context<'_>, target: &SshTarget, arguments: &[OsString]) -> Result<()> {
    let mut command = ssh_command(ctx, "ssh", target)?;
    command.arg(format!("{}@{}", target.user, target.host)).args(arguments);
    Err(spawn_failure("ssh", &command.exec()))
}

/// A command for `ssh` or `scp` that knows the host key of the target.
pub(crate) fn ssh_command(ctx: &Context<'_>, program: &str, target: &SshTarget) -> Result<Command> {
    let known: Option<PathBuf> = known_hosts::save_host_key(ctx.environment, target)?;
    let mut command = Command::new(program);
    for option in target.ssh_options(known.as_deref()) {
        command.arg("-o").arg(option);
    }
    Ok(command)
}

/// The failure for a program that did not start.
pub(crate) fn spawn_failure(program: &str, error: &std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            Failure::new(format!("{program} is not installed; install the OpenSSH client and try again"))
        }
        _ => Failure::with_cause(format_args!("cannot start {program}"), error),
    }
}
