//! `tarn ssh-config`: a file for `ssh` with all machines by their names, and the line that includes it, so that `ssh my-cluster`,
//! `scp`, `rsync` and editors find them.

use std::path::Path;

use clap::Args;
use serde_json::json;

use crate::commands::Context;
use crate::failure::{Failure, Result};
use crate::logins::Login;
use crate::output::text;
use crate::{files, known_hosts, machines, show};

/// The name of the file with the machines.
const FILE: &str = "ssh_config";

/// What it begins with, and what the machines of each engine begin with.
const HEAD: &str = "# Written by `tarn ssh-config`, which replaces it.\n";
const BLOCK: &str = "# Machines of ";

/// The longest name of a machine.
const MAX_NAME: usize = 80;

#[derive(Args, Debug)]
pub struct SshConfig {
    /// Print it, and write nothing
    #[arg(long)]
    print: bool,
}

pub(crate) async fn run(ctx: &Context<'_>, options: SshConfig) -> Result<()> {
    let directory = ctx.surroundings.configuration.as_deref();
    let directory = directory.ok_or_else(|| Failure::new("there is no directory for configuration; set HOME"))?;
    let home = ctx.surroundings.home.as_deref().ok_or_else(|| Failure::new("there is no home directory; set HOME"))?;
    let config = home.join(".ssh/config");
    let before = files::read_if_there(&config)?;
    let own = names_in(&before);
    let (mut written, mut names) = (String::new(), Vec::new());
    for cluster in machines::all(ctx).await? {
        for (number, instance) in cluster["instances"].as_array().into_iter().flatten().enumerate() {
            // Those that do not run yet have no way in.
            let Ok(login) = Login::of(instance, ctx.engine.address()) else { continue };
            let known = known_hosts::remember(ctx.surroundings, &login)?;
            let hosts = hosts(text(&cluster, "name"), number, &login, &own);
            if hosts.is_empty() {
                continue;
            }
            written.push_str(&entry(&hosts, &login, known.as_deref()));
            names.extend(hosts.into_iter().next());
        }
    }
    let path = directory.join(FILE);
    if !options.print {
        let old = files::read_if_there(&path)?;
        files::replace(&path, &with_block(&old, ctx.engine.address(), &written))?;
        include(&config, &before, &path)?;
    }
    let body = json!({ "hosts": names, "ssh_config": written, "path": path });
    show::once(ctx, &body, |_| match (options.print, names.as_slice()) {
        (true, _) => written.clone(),
        (false, []) => "No machine runs; run it again when one does.".to_owned(),
        (false, names) => format!("ssh knows now: {}", names.join(", ")),
    })
}

/// The names of a machine: that of the cluster for its first one, that with its number for all, and its own. A name that belongs
/// to somebody else (with a dot, or of the person's own file) stays his.
fn hosts(cluster: &str, number: usize, login: &Login, own: &[String]) -> Vec<String> {
    let of_cluster = [(number == 0).then(|| cluster.to_owned()), Some(format!("{cluster}-{number}"))];
    let of_machine = [Some(login.name.clone()), Some(login.instance.clone())];
    let all = of_cluster.into_iter().filter(|_| is_name(cluster)).chain(of_machine).flatten();
    all.filter(|name| is_name(name) && !own.contains(name)).collect()
}

fn is_name(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=MAX_NAME).contains(&text.len()) && !text.starts_with('-') && text.bytes().all(is_good)
}

/// The file with the machines of an engine in the place of those that it had before. Those of others stay.
fn with_block(before: &str, engine: &str, machines: &str) -> String {
    let title = format!("{BLOCK}{engine}");
    let (mut kept, mut is_old) = (String::new(), true);
    for line in before.lines() {
        is_old = if line.starts_with(BLOCK) { line == title } else { is_old };
        if !is_old {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    format!("{HEAD}{kept}{title}\n{machines}")
}

/// The names that a file of `ssh` has by itself.
fn names_in(config: &str) -> Vec<String> {
    let words = |line: &str| {
        line.split(|c: char| c.is_whitespace() || c == '=' || c == '"').map(str::to_owned).collect::<Vec<_>>()
    };
    let lines = config.lines().map(|line| words(line.trim()));
    lines.filter(|words| words.first().is_some_and(|first| first.eq_ignore_ascii_case("host"))).flatten().collect()
}

fn entry(hosts: &[String], login: &Login, known: Option<&Path>) -> String {
    let options: String =
        login.options(known).iter().map(|option| format!("    {}\n", option.replacen('=', " ", 1))).collect();
    format!("\nHost {}\n    HostName {}\n    User {}\n{options}", hosts.join(" "), login.host, login.user)
}

/// Lets the person's own file include ours. It must come first: what follows a `Host` belongs to that.
fn include(config: &Path, before: &str, path: &Path) -> Result<()> {
    let line = format!("Include \"{}\"", path.display());
    match before.lines().any(|known| known.trim() == line) {
        true => Ok(()),
        false => files::replace(config, &format!("{line}\n{}{before}", if before.is_empty() { "" } else { "\n" })),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn engines_do_not_take_each_others_machines_away() {
        let one = with_block("", "http://a", "\nHost x\n");
        assert_eq!(one, format!("{HEAD}{BLOCK}http://a\n\nHost x\n"));
        let both = with_block(&one, "http://b", "\nHost y\n");
        assert!(both.contains("Host x") && both.contains("Host y"));
        let less = with_block(&both, "http://a", "");
        assert!(!less.contains("Host x") && less.contains("Host y") && less.matches(HEAD).count() == 1, "{less}");
    }

    #[test]
    fn names_of_others_stay_theirs() {
        let own = names_in("Host work *.example.org\n  User me\nhost=\"old\"\n");
        assert!(own.contains(&"work".to_owned()) && own.contains(&"old".to_owned()) && !own.contains(&"me".to_owned()));
        let machine = json!({ "id": "i-1", "name": "c-1-0", "ssh_command": "ssh i-1@127.0.0.1" });
        let login = Login::of(&machine, "").unwrap();
        assert_eq!(hosts("heron", 0, &login, &own), ["heron", "heron-0", "c-1-0", "i-1"]);
        assert_eq!(hosts("heron", 1, &login, &own), ["heron-1", "c-1-0", "i-1"]);
        assert_eq!(hosts("work", 0, &login, &own), ["work-0", "c-1-0", "i-1"]);
        for odd in ["github.com", "*", "a b", "-x", ""] {
            assert_eq!(hosts(odd, 0, &login, &own), ["c-1-0", "i-1"], "{odd}");
        }
    }
}
