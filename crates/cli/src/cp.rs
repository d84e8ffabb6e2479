//! `tarn cp`: files to and from machines, by `scp`, which shows how far it is.

use std::path::PathBuf;
use std::process::Stdio;

use clap::Args;
use serde_json::json;

use crate::commands::Context;
use crate::failure::{Failure, Result};
use crate::logins::Login;
use crate::{machines, output, ssh};

#[derive(Args, Debug)]
pub struct Cp {
    /// What is copied: paths here, or NAME:PATH on a machine
    #[arg(required = true, num_args = 1..)]
    from: Vec<String>,
    /// Where it goes: a path here, or NAME:PATH on a machine
    to: String,
}

/// One side of a copy.
enum Side {
    Here(PathBuf),
    There(Login, String),
}

pub(crate) async fn run(ctx: &Context<'_>, cp: Cp) -> Result<()> {
    let to = side(ctx, &cp.to).await?;
    let mut from = Vec::new();
    for each in &cp.from {
        from.push(side(ctx, each).await?);
    }
    let theirs: Vec<&Login> = from
        .iter()
        .chain([&to])
        .filter_map(|side| match side {
            Side::There(login, _) => Some(login),
            Side::Here(_) => None,
        })
        .collect();
    let Some(login) = theirs.first() else {
        return Err(Failure::usage("neither side is on a machine; write NAME:PATH for one of them"));
    };
    if theirs.iter().any(|other| other != login) || (matches!(to, Side::There(..)) && theirs.len() > 1) {
        return Err(Failure::usage("one side must be here; copy from one machine to another in two steps"));
    }
    let mut command = ssh::command(ctx, "scp", login)?;
    command.arg("-r").arg("--").args(from.iter().chain([&to]).map(Side::argument)).stdin(Stdio::inherit());
    let mut copying = command.spawn().map_err(|e| ssh::unfound("scp", &e))?;
    // It hears Ctrl-C as well, and ends by itself.
    let status = tokio::task::spawn_blocking(move || copying.wait()).await.map_err(std::io::Error::other).flatten();
    let status = status.map_err(|e| Failure::doing("scp was lost", e))?;
    match (status.success(), ctx.options.json) {
        (false, _) if ctx.interrupts.is_pressed() => {
            Err(Failure::interrupted("interrupted; not everything was copied"))
        }
        (true, false) => Ok(()),
        (true, true) => output::print_json(&json!({ "message": "everything was copied" })),
        (false, _) => Err(Failure::new("not everything was copied; see above")),
    }
}

async fn side(ctx: &Context<'_>, text: &str) -> Result<Side> {
    // A path with a slash before its first colon is one here, as for scp.
    match text.split_once(':') {
        Some((name, path)) if !name.is_empty() && !name.contains('/') => {
            Ok(Side::There(machines::find(ctx, name).await?, path.to_owned()))
        }
        _ => Ok(Side::Here(text.into())),
    }
}

impl Side {
    fn argument(&self) -> std::ffi::OsString {
        match self {
            Side::Here(path) if path.is_absolute() => path.into(),
            Side::Here(path) => PathBuf::from(".").join(path).into(),
            Side::There(login, path) => format!("{}@{}:{path}", login.user, bracketed(&login.host)).into(),
        }
    }
}

/// An address of version 6 has colons of its own.
fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}
