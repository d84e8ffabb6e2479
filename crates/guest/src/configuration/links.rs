//! Links in the user's home directory to where volumes are mounted.
//!
//! The directory is the user's and the guest is root: nothing is followed, nothing of the user's is replaced or removed, and
//! a link is given to him through a descriptor of that very link, so that he cannot put another file in its place.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::files::open_directory;
use crate::accounts::Account;

/// The name of a link and where it leads.
pub(super) type Link = (String, String);

/// Removes the links that are ours and not wanted any more, and makes those that are missing. What else has such a name was
/// put there by the user and stays.
pub(super) fn replace(account: &Account, ours: &[Link], wanted: &[Link]) -> io::Result<()> {
    if ours.is_empty() && wanted.is_empty() {
        return Ok(());
    }
    let home = open_directory(&account.home)?;
    for link in ours.iter().filter(|link| !wanted.contains(link)) {
        if find(&home, link)?.is_some() {
            absent(rustix::fs::unlinkat(&home, &link.0, AtFlags::empty()))?;
        }
    }
    wanted.iter().try_for_each(|link| make(&home, account, link))
}

/// Gives the user a volume that comes to this instance and was the user's of another one, whose image may have another user:
/// only the volume itself, and nothing in it. What is root's was made so on purpose. Once it is here, it is left as it is.
pub(super) fn give_volume(root: &Path, account: &Account, (_, path): &Link) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // One that is not there is nobody's loss: whoever mounted it knows.
    let Ok(volume) = rustix::fs::open(root.join(path.trim_start_matches('/')), flags, Mode::empty()) else { return };
    let owner = rustix::fs::fstat(&volume).map_or(0, |found| found.st_uid);
    let is_anothers = owner != 0 && owner != account.uid;
    if is_anothers && account.uid != 0 && rustix::process::geteuid().is_root() {
        let (user, group) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
        if let Err(e) = rustix::fs::fchown(&volume, Some(user), Some(group)) {
            eprintln!("tarn-guest: a volume could not be given to {}: {e}", account.name);
        }
    }
}

fn make(home: &OwnedFd, account: &Account, link: &Link) -> io::Result<()> {
    match rustix::fs::symlinkat(&link.1, home, &link.0) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let Some(made) = find(home, link)? else { return Ok(()) };
    if rustix::process::geteuid().is_root() {
        let (user, group) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
        let this = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(&made, "", Some(user), Some(group), this)?;
    }
    Ok(())
}

/// The link itself, if there is one of this name that leads there.
fn find(home: &OwnedFd, (name, target): &Link) -> io::Result<Option<OwnedFd>> {
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

fn absent(removed: rustix::io::Result<()>) -> io::Result<()> {
    match removed {
        // The user was quicker; what is a directory now is his.
        Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
