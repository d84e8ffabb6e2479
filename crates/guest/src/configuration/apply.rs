//! Writes a configuration into the files of the instance.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use rustix::fs::Mode;
use tarn_link::Configuration;

use super::State;
use super::files::{Owner, directory_below, open_directory, read, replace, system_directory};
use super::links;
use crate::accounts::Account;

const BEGIN: &str = "# Begin of the lines that Tarn keeps: changes between here and the end are lost.";
const END: &str = "# End of the lines that Tarn keeps.";

const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);
const PUBLIC: Mode = PRIVATE.union(Mode::RGRP).union(Mode::ROTH);

/// Writes everything, then remembers it. If something fails, the next try begins anew; each file is whole at any time.
pub(crate) fn apply(root: &Path, account: &Account, state: &mut State, wanted: Configuration) -> io::Result<()> {
    let etc = system_directory(root, "etc")?;
    let system = Owner { account: None, mode: PUBLIC };
    let hosts: Vec<String> = wanted.hosts.iter().map(|(name, address)| format!("{address}\t{name}")).collect();
    let before = text(&etc, "hosts");
    replace(&etc, "hosts", merge(&with_localhost(before), &hosts).as_bytes(), system)?;
    let ssh = system_directory(root, "etc/ssh")?;
    let known_hosts = merge(&text(&ssh, "ssh_known_hosts"), &wanted.known_hosts);
    replace(&ssh, "ssh_known_hosts", known_hosts.as_bytes(), system)?;
    if !wanted.peer_key.is_empty() {
        let ours = [state.configuration.peer_key.as_str(), wanted.peer_key.as_str()];
        write_peer_key(account, &ours, &wanted)?;
    }
    write_links(root, account, state, &wanted)?;
    let mut next = state.clone();
    next.links.clone_from(&wanted.volumes);
    next.configuration = wanted;
    next.save(root)?;
    *state = next;
    Ok(())
}

/// Links the volumes into the home directory. New ones are remembered first: a link that nobody knows would stay for ever.
fn write_links(root: &Path, account: &Account, state: &mut State, wanted: &Configuration) -> io::Result<()> {
    let new: Vec<_> = wanted.volumes.iter().filter(|link| !state.links.contains(link)).cloned().collect();
    new.iter().for_each(|link| links::give_volume(root, account, link));
    if !new.is_empty() {
        let mut next = state.clone();
        next.links.extend(new);
        next.save(root)?;
        *state = next;
    }
    links::replace(account, &state.links, &wanted.volumes)
}

/// Gives the user the key to the other nodes, unless he has a key of his own in its place.
fn write_peer_key(account: &Account, ours: &[&str], wanted: &Configuration) -> io::Result<()> {
    let home = open_directory(&account.home)?;
    let owner = Owner { account: Some(account), mode: PRIVATE };
    let ssh = directory_below(home, ".ssh", Owner { mode: Mode::RWXU, ..owner })?;
    // A name that cannot be read as a file (a link, a directory) was put there by the user.
    let is_free = match read(&ssh, "id_ed25519") {
        Ok(None) => true,
        Ok(Some((_, text))) => ours.iter().any(|key| !key.is_empty() && key.as_bytes() == text),
        Err(_) => false,
    };
    if !is_free {
        return Ok(());
    }
    replace(&ssh, "id_ed25519", wanted.peer_key.as_bytes(), owner)?;
    if wanted.peer_public_key.is_empty() {
        return Ok(());
    }
    let public = format!("{}\n", wanted.peer_public_key.trim_end());
    replace(&ssh, "id_ed25519.pub", public.as_bytes(), Owner { mode: PUBLIC, ..owner })
}

/// What a file says. One that cannot be read, such as a link that an image has in its place, says nothing and is replaced.
fn text(directory: &impl std::os::fd::AsFd, name: &str) -> String {
    let contents = read(directory, name).ok().flatten().map(|(_, contents)| contents).unwrap_or_default();
    String::from_utf8_lossy(&contents).into_owned()
}

/// Puts our lines in place of those we put there before; everything else stays where it is.
fn merge(before: &str, ours: &[String]) -> String {
    let mut merged = String::with_capacity(before.len());
    let mut inside = false;
    for line in before.lines() {
        match line {
            BEGIN => inside = true,
            END => inside = false,
            _ if inside => {}
            _ => merged.extend([line, "\n"]),
        }
    }
    merged.extend([BEGIN, "\n"]);
    ours.iter().for_each(|line| merged.extend([line.trim_end(), "\n"]));
    merged.extend([END, "\n"]);
    merged
}

/// An instance always knows itself.
fn with_localhost(text: String) -> String {
    let names_localhost = |line: &str| {
        let mut words = line.split_whitespace();
        words.next().is_some_and(|word| word.parse::<IpAddr>().is_ok()) && words.any(|word| word == "localhost")
    };
    if text.lines().any(names_localhost) {
        return text;
    }
    format!("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_lines_are_replaced() {
        let first = merge("10.9.9.9 mine\n", &["10.0.0.1\ta".into()]);
        assert_eq!(first, format!("10.9.9.9 mine\n{BEGIN}\n10.0.0.1\ta\n{END}\n"));
        let second = merge(&format!("{first}10.8.8.8 later\n"), &["10.0.0.2\tb".into()]);
        assert_eq!(second, format!("10.9.9.9 mine\n10.8.8.8 later\n{BEGIN}\n10.0.0.2\tb\n{END}\n"));
    }

    #[test]
    fn localhost_is_added_once() {
        let once = with_localhost("10.0.0.1 a\n".into());
        assert!(once.starts_with("127.0.0.1\tlocalhost\n"));
        assert_eq!(with_localhost(once.clone()), once);
    }
}
