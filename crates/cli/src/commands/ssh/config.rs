//! `tarn ssh-config`: writes an `ssh` configuration with all instances by name, and the line that includes it, so that
//! `ssh my-cluster`, `scp`, `rsync` and editors find them.

use std::path::Path;

use clap::Args;
use serde_json::json;

use crate::commands::Context;
use crate::commands::display;
use crate::commands::ssh::instances;
use crate::commands::ssh::known_hosts;
use crate::commands::ssh::target::SshTarget;
use crate::failure::{Failure, Result};
use crate::files;
use crate::terminal::output::text_field;

/// The name of the file with the instances.
const FILE: &str = "ssh_config";

/// The first line of the file, and the beginning of the line before the instances of an engine, as earlier versions
/// wrote it.
const HEAD: &str = "# Written by `tarn ssh-config`, which replaces it.\n";
const BLOCK: &str = "# Machines of ";

/// The maximum length of a host name.
const MAX_NAME: usize = 80;

#[derive(Args, Debug)]
pub struct SshConfig {
    /// Print the configuration instead of writing it
    #[arg(long)]
    print: bool,
}

pub(crate) async fn run_ssh_config(ctx: &Context<'_>, options: SshConfig) -> Result<()> {
    let directory = ctx.environment.configuration.as_deref();
    let directory = directory.ok_or_else(|| Failure::new("there is no configuration directory; set HOME"))?;
    let home = ctx.environment.home.as_deref().ok_or_else(|| Failure::new("there is no home directory; set HOME"))?;
    let config = home.join(".ssh/config");
    let before = files::read_if_exists(&config)?;
    let own = configured_host_names(&before);
    let (mut written, mut names) = (String::new(), Vec::new());
    for cluster in instances::list_visible_clusters(ctx).await? {
        for (number, instance) in cluster["instances"].as_array().into_iter().flatten().enumerate() {
            // An instance that does not run yet has no SSH command.
            let Ok(target) = SshTarget::from_instance(instance, ctx.api.address()) else { continue };
            let known = known_hosts::save_host_key(ctx.environment, &target)?;
            let hosts = host_names(text_field(&cluster, "name"), number, &target, &own);
            if hosts.is_empty() {
                continue;
            }
            written.push_str(&render_host_entry(&hosts, &target, known.as_deref()));
            names.extend(hosts.into_iter().next());
        }
    }
    let path = directory.join(FILE);
    if !options.print {
        let old = files::read_if_exists(&path)?;
        files::replace_file(&path, &replace_engine_block(&old, ctx.api.address(), &written))?;
        ensure_include(&config, &before, &path)?;
    }
    let body = json!({ "hosts": names, "ssh_config": written, "path": path });
    display::print_body(ctx, &body, |_| match (options.print, names.as_slice()) {
        (true, _) => written.clone(),
        (false, []) => "No instance is running; run this command again when one is.".to_owned(),
        (false, names) => format!("ssh now knows: {}", names.join(", ")),
    })
}

/// The host names of an instance: the name of the cluster for its first instance, the cluster name with the node
/// number, and the instance's own name and ID. Names with a dot and names in the user's own configuration are left out.
fn host_names(cluster: &str, number: usize, target: &SshTarget, own: &[String]) -> Vec<String> {
    let of_cluster = [(number == 0).then(|| cluster.to_owned()), Some(format!("{cluster}-{number}"))];
    let of_instance = [Some(target.name.clone()), Some(target.instance.clone())];
    let all = of_cluster.into_iter().filter(|_| is_host_name(cluster)).chain(of_instance).flatten();
    all.filter(|name| is_host_name(name) && !own.contains(name)).collect()
}

fn is_host_name(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=MAX_NAME).contains(&text.len()) && !text.starts_with('-') && text.bytes().all(is_good)
}

/// Replaces the instances of one engine in the file. Those of other engines stay.
fn replace_engine_block(before: &str, engine: &str, instances: &str) -> String {
    let title = format!("{BLOCK}{engine}");
    let (mut kept, mut is_old) = (String::new(), true);
    for line in before.lines() {
        is_old = if line.starts_with(BLOCK) { line == title } else { is_old };
        if !is_old {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    format!("{HEAD}{kept}{title}\n{instances}")
}

/// The host names in the user's own `ssh` configuration.
fn configured_host_names(config: &str) -> Vec<String> {
    let words = |line: &str| {
        line.split(|c: char| c.is_whitespace() || c == '=' || c == '"').map(str::to_owned).collect::<Vec<_>>()
    };
    let lines = config.lines().map(|line| words(line.trim()));
    lines.filter(|words| words.first().is_some_and(|first| first.eq_ignore_ascii_case("host"))).flatten().collect()
}

fn render_host_entry(hosts: &[String], target: &SshTarget, known: Option<&Path>) -> String {
    let options: String =
        target.ssh_options(known).iter().map(|option| format!("    {}\n", option.replacen('=', " ", 1))).collect();
    format!("\nHost {}\n    HostName {}\n    User {}\n{options}", hosts.join(" "), target.host, target.user)
}

/// Adds the `Include` line to the user's own file. It must come first: lines after a `Host` belong to that host.
fn ensure_include(config: &Path, before: &str, path: &Path) -> Result<()> {
    let line = format!("Include \"{}\"", path.display());
    if before.lines().any(|known| known.trim() == line) {
        Ok(())
    } else {
        files::replace_file(config, &format!("{line}\n{}{before}", if before.is_empty() { "" } else { "\n" }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn engines_keep_separate_blocks() {
        let one = replace_engine_block("", "http://a", "\nHost x\n");
        assert_eq!(one, format!("{HEAD}{BLOCK}http://a\n\nHost x\n"));
        let both = replace_engine_block(&one, "http://b", "\nHost y\n");
        assert!(both.contains("Host x") && both.contains("Host y"));
        let less = replace_engine_block(&both, "http://a", "");
        assert!(!less.contains("Host x") && less.contains("Host y") && less.matches(HEAD).count() == 1, "{less}");
    }

    #[test]
    fn names_of_the_user_are_left_out() {
        let own = configured_host_names("Host work *.example.org\n  User me\nhost=\"old\"\n");
        assert!(own.contains(&"work".to_owned()) && own.contains(&"old".to_owned()) && !own.contains(&"me".to_owned()));
        let instance = json!({ "id": "i-1", "name": "c-1-0", "ssh_command": "ssh i-1@127.0.0.1" });
        let target = SshTarget::from_instance(&instance, "").unwrap();
        assert_eq!(host_names("heron", 0, &target, &own), ["heron", "heron-0", "c-1-0", "i-1"]);
        assert_eq!(host_names("heron", 1, &target, &own), ["heron-1", "c-1-0", "i-1"]);
        assert_eq!(host_names("work", 0, &target, &own), ["work-0", "c-1-0", "i-1"]);
        for odd in ["github.com", "*", "a b", "-x", ""] {
            assert_eq!(host_names(odd, 0, &target, &own), ["c-1-0", "i-1"], "{odd}");
        }
    }
}
