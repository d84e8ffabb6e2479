//! `tarn ssh`: becomes `ssh`, with options of our own making.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::commands::Context;
use crate::failure::{Failure, Result};
use crate::logins::Login;
use crate::{known_hosts, machines, output};

#[derive(Args, Debug)]
pub struct Ssh {
    /// A cluster or a machine, by name or ID; with --json it is described, and nobody logs in
    name: String,
    /// What to run there, or further options for ssh
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub(crate) async fn run(ctx: &Context<'_>, ssh: Ssh) -> Result<()> {
    if ctx.options.json {
        return output::print_json(&machines::describe(ctx, &ssh.name).await?);
    }
    let login = machines::find(ctx, &ssh.name).await?;
    enter(ctx, &login, &ssh.arguments)
}

/// Becomes `ssh` to a machine, and so returns only if that does not work.
pub(crate) fn enter(ctx: &Context<'_>, login: &Login, arguments: &[OsString]) -> Result<()> {
    let mut command = command(ctx, "ssh", login)?;
    command.arg(format!("{}@{}", login.user, login.host)).args(arguments);
    Err(unfound("ssh", &command.exec()))
}

/// A program of the family of `ssh`, which knows the other side.
pub(crate) fn command(ctx: &Context<'_>, program: &str, login: &Login) -> Result<Command> {
    let known: Option<PathBuf> = known_hosts::remember(ctx.surroundings, login)?;
    let mut command = Command::new(program);
    for option in login.options(known.as_deref()) {
        command.arg("-o").arg(option);
    }
    Ok(command)
}

/// Why a program could not be started.
pub(crate) fn unfound(program: &str, error: &std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            Failure::new(format!("{program} is not installed; install OpenSSH's client and try again"))
        }
        _ => Failure::doing(format_args!("{program} cannot be started"), error),
    }
}
