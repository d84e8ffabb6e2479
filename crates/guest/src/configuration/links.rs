//! Links in the user's home directory to the mount points of volumes.
//!
//! The directory belongs to the user and the guest is root: no link is followed, no file of the user is replaced or
//! removed, and the ownership of a link is changed through a descriptor of that link, so that the user cannot exchange
//! it for another file.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use crate::filesystem::open_directory;
use crate::users::Account;

/// The name of a link and its target.
pub(super) type Link = (String, String);

/// Removes our links that are no longer wanted, and creates the missing ones. Anything else of such a name belongs to
/// the user and stays.
pub(super) fn sync_links(account: &Account, ours: &[Link], wanted: &[Link]) -> io::Result<()> {
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
pub(super) fn chown_volume(root: &Path, account: &Account, (_, path): &Link) {
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
