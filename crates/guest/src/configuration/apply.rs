//! Writes a configuration to the files of the instance.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use tarn_link::Configuration;

use super::State;
use crate::filesystem::{Owner, open_directory, open_or_create_below, open_system_directory, read_file, replace_file};
use crate::users::Account;

const BEGIN: &str = "# Begin of the lines that Tarn keeps: changes between here and the end are lost.";
const END: &str = "# End of the lines that Tarn keeps.";

const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);
const PUBLIC: Mode = PRIVATE.union(Mode::RGRP).union(Mode::ROTH);

/// Writes all files, then saves the state. If something fails, the next call starts over; each file is complete at any
/// time.
pub(crate) fn apply_configuration(
    root: &Path,
    account: &Account,
    state: &mut State,
    wanted: Configuration,
) -> io::Result<()> {
    let etc = open_system_directory(root, "etc")?;
    let system = Owner { account: None, mode: PUBLIC };
    let hosts: Vec<String> = wanted.hosts.iter().map(|(name, address)| format!("{address}\t{name}")).collect();
    let before = read_text_or_empty(&etc, "hosts");
    replace_file(&etc, "hosts", merge_managed_lines(&with_localhost_entries(before), &hosts).as_bytes(), system)?;
    let ssh = open_system_directory(root, "etc/ssh")?;
    let known_hosts = merge_managed_lines(&read_text_or_empty(&ssh, "ssh_known_hosts"), &wanted.known_hosts);
    replace_file(&ssh, "ssh_known_hosts", known_hosts.as_bytes(), system)?;
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

/// Links the volumes into the home directory. New links are saved first: an unknown link would stay forever.
fn write_links(root: &Path, account: &Account, state: &mut State, wanted: &Configuration) -> io::Result<()> {
    let new: Vec<_> = wanted.volumes.iter().filter(|link| !state.links.contains(link)).cloned().collect();
    new.iter().for_each(|link| chown_volume(root, account, link));
    if !new.is_empty() {
        let mut next = state.clone();
        next.links.extend(new);
        next.save(root)?;
        *state = next;
    }
    sync_links(account, &state.links, &wanted.volumes)
}

/// Installs the key for the other nodes, unless the user has another key in its place.
fn write_peer_key(account: &Account, ours: &[&str], wanted: &Configuration) -> io::Result<()> {
    let home = open_directory(&account.home)?;
    let owner = Owner { account: Some(account), mode: PRIVATE };
    let ssh = open_or_create_below(home, ".ssh", Owner { mode: Mode::RWXU, ..owner })?;
    // Anything that cannot be read as a file (a link, a directory) was put there by the user.
    let is_free = match read_file(&ssh, "id_ed25519") {
        Ok(None) => true,
        Ok(Some((_, text))) => ours.iter().any(|key| !key.is_empty() && key.as_bytes() == text),
        Err(_) => false,
    };
    if !is_free {
        return Ok(());
    }
    replace_file(&ssh, "id_ed25519", wanted.peer_key.as_bytes(), owner)?;
    if wanted.peer_public_key.is_empty() {
        return Ok(());
    }
    let public = format!("{}\n", wanted.peer_public_key.trim_end());
    replace_file(&ssh, "id_ed25519.pub", public.as_bytes(), Owner { mode: PUBLIC, ..owner })
}

/// Returns the text of a file. A file that cannot be read, such as a link in the image, counts as empty and is
/// replaced.
fn read_text_or_empty(directory: &impl std::os::fd::AsFd, name: &str) -> String {
    let contents = read_file(directory, name).ok().flatten().map(|(_, contents)| contents).unwrap_or_default();
    String::from_utf8_lossy(&contents).into_owned()
}

/// Replaces our lines from an earlier call; all other lines stay.
fn merge_managed_lines(before: &str, ours: &[String]) -> String {
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

/// Adds entries for localhost if there are none.
fn with_localhost_entries(text: String) -> String {
    let names_localhost = |line: &str| {
        let mut words = line.split_whitespace();
        words.next().is_some_and(|word| word.parse::<IpAddr>().is_ok()) && words.any(|word| word == "localhost")
    };
    if text.lines().any(names_localhost) {
        return text;
    }
    format!("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n{text}")
}

/// The name of a link and its target.
pub(super) type Link = (String, String);

/// Removes our links to volumes that are no longer wanted, and creates the missing ones. Anything else of such a name
/// belongs to the user and stays.
///
/// The home directory belongs to the user and the guest is root: no link is followed, no file of the user is replaced
/// or removed, and the ownership of a link is changed through a descriptor of that link, so that the user cannot
/// exchange it for another file.
fn sync_links(account: &Account, ours: &[Link], wanted: &[Link]) -> io::Result<()> {
    if ours.is_empty() && wanted.is_empty() {
        return Ok(());
    }
    let home = open_directory(&account.home)?;
    for link in ours.iter().filter(|link| !wanted.contains(link)) {
        if open_link(&home, link)?.is_some() {
            ignore_missing(rustix::fs::unlinkat(&home, &link.0, AtFlags::empty()))?;
        }
    }
    wanted.iter().try_for_each(|link| create_link(&home, account, link))
}

/// Changes the owner of a newly mounted volume to the user: in its previous instance, whose image may differ, the user
/// may have had another id. Only the top directory changes. A volume of root is left alone, and so is one that was
/// mounted here before.
fn chown_volume(root: &Path, account: &Account, (_, path): &Link) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // The driver reports a missing mount.
    let Ok(volume) = rustix::fs::open(root.join(path.trim_start_matches('/')), flags, Mode::empty()) else { return };
    let owner = rustix::fs::fstat(&volume).map_or(0, |found| found.st_uid);
    let is_anothers = owner != 0 && owner != account.uid;
    if is_anothers && account.uid != 0 && rustix::process::geteuid().is_root() {
        let (user, group) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
        if let Err(e) = rustix::fs::fchown(&volume, Some(user), Some(group)) {
            eprintln!("tarn-guest: the owner of a volume could not be changed to {}: {e}", account.name);
        }
    }
}

fn create_link(home: &OwnedFd, account: &Account, link: &Link) -> io::Result<()> {
    match rustix::fs::symlinkat(&link.1, home, &link.0) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let Some(made) = open_link(home, link)? else { return Ok(()) };
    if rustix::process::geteuid().is_root() {
        let (user, group) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
        let this = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(&made, "", Some(user), Some(group), this)?;
    }
    Ok(())
}

/// Opens the link itself, if there is one of this name with this target.
fn open_link(home: &OwnedFd, (name, target): &Link) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = match rustix::fs::openat(home, name, flags, Mode::empty()) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    if FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) != FileType::Symlink {
        return Ok(None);
    }
    let leads_to = rustix::fs::readlinkat(&found, "", Vec::new())?;
    Ok((leads_to.as_bytes() == target.as_bytes()).then_some(found))
}

fn ignore_missing(removed: rustix::io::Result<()>) -> io::Result<()> {
    match removed {
        // The user was faster; a directory now belongs to the user.
        Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only our own lines are replaced.
    #[test]
    fn merge_replaces_managed_lines_only() {
        let first = merge_managed_lines("10.9.9.9 mine\n", &["10.0.0.1\ta".into()]);
        assert_eq!(first, format!("10.9.9.9 mine\n{BEGIN}\n10.0.0.1\ta\n{END}\n"));
        let second = merge_managed_lines(&format!("{first}10.8.8.8 later\n"), &["10.0.0.2\tb".into()]);
        assert_eq!(second, format!("10.9.9.9 mine\n10.8.8.8 later\n{BEGIN}\n10.0.0.2\tb\n{END}\n"));
    }

    /// Entries for localhost are added once.
    #[test]
    fn localhost_entries_are_added_once() {
        let once = with_localhost_entries("10.0.0.1 a\n".into());
        assert!(once.starts_with("127.0.0.1\tlocalhost\n"));
        assert_eq!(with_localhost_entries(once.clone()), once);
    }
}
