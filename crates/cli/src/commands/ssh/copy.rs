//! `tarn cp`: copies files to and from instances with `scp`, which shows the progress.

use std::path::PathBuf;
use std::process::Stdio;

use clap::Args;
use serde_json::json;

use crate::commands::Context;
use crate::commands::ssh;
use crate::commands::ssh::instances;
use crate::commands::ssh::target::SshTarget;
use crate::failure::{Failure, Result};
use crate::terminal::output;

#[derive(Args, Debug)]
pub struct Copy {
    /// The sources: local paths, or NAME:PATH on an instance
    #[arg(required = true, num_args = 1..)]
    from: Vec<String>,
    /// The destination: a local path, or NAME:PATH on an instance
    to: String,
}

/// A source or destination of a copy.
enum Endpoint {
    Local(PathBuf),
    Remote(SshTarget, String),
}

pub(crate) async fn run_copy(ctx: &Context<'_>, copy: Copy) -> Result<()> {
    let to = parse_endpoint(ctx, &copy.to).await?;
    let mut from = Vec::new();
    for each in &copy.from {
        from.push(parse_endpoint(ctx, each).await?);
    }
    let theirs: Vec<&SshTarget> = from
        .iter()
        .chain([&to])
        .filter_map(|side| match side {
            Endpoint::Remote(target, _) => Some(target),
            Endpoint::Local(_) => None,
        })
        .collect();
    let Some(target) = theirs.first() else {
        return Err(Failure::usage("neither side is on an instance; write NAME:PATH for one of them"));
    };
    if theirs.iter().any(|other| other != target) || (matches!(to, Endpoint::Remote(..)) && theirs.len() > 1) {
        return Err(Failure::usage("one side must be local; copy from one instance to another in two steps"));
    }
    let mut command = ssh::ssh_command(ctx, "scp", target)?;
    command.arg("-r").arg("--").args(from.iter().chain([&to]).map(Endpoint::scp_argument)).stdin(Stdio::inherit());
    let mut copying = command.spawn().map_err(|e| ssh::spawn_failure("scp", &e))?;
    // scp receives Ctrl-C as well, and ends by itself.
    let status = tokio::task::spawn_blocking(move || copying.wait()).await.map_err(std::io::Error::other).flatten();
    let status = status.map_err(|e| Failure::with_cause("cannot wait for scp", e))?;
    match (status.success(), ctx.options.json) {
        (false, _) if ctx.interrupts.is_pressed() => {
            Err(Failure::interrupted("interrupted; not everything was copied"))
        }
        (true, false) => Ok(()),
        (true, true) => output::print_json(&json!({ "message": "everything was copied" })),
        (false, _) => Err(Failure::new("not everything was copied; see the errors of scp above")),
    }
}

async fn parse_endpoint(ctx: &Context<'_>, text: &str) -> Result<Endpoint> {
    // A path with a slash before its first colon is local, as for scp.
    match text.split_once(':') {
        Some((name, path)) if !name.is_empty() && !name.contains('/') => {
            Ok(Endpoint::Remote(instances::find_ssh_target(ctx, name).await?, path.to_owned()))
        }
        _ => Ok(Endpoint::Local(text.into())),
    }
}

impl Endpoint {
    fn scp_argument(&self) -> std::ffi::OsString {
        match self {
            Endpoint::Local(path) if path.is_absolute() => path.into(),
            Endpoint::Local(path) => PathBuf::from(".").join(path).into(),
            Endpoint::Remote(target, path) => format!("{}@{}:{path}", target.user, bracket_ipv6(&target.host)).into(),
        }
    }
}

/// Puts an IPv6 address into brackets, because it contains colons.
fn bracket_ipv6(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}
