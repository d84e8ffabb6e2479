//! Reading and writing files that the user or an image may have tampered with, or made very long or endless.
//!
//! Files are written atomically, also into directories of the user, where no links are followed: the guest is root, and
//! the user must not be able to make it write elsewhere. Nothing is synced. If the host crashes, the engine starts the
//! instance again and configures it again, and a state that cannot be read counts as missing.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use crate::users::Account;

/// The maximum length of a file that is read.
const MAX_FILE: u64 = 8 << 20;

/// The owner and the permissions of a file.
#[derive(Clone, Copy)]
pub(crate) struct Owner<'a> {
    /// The owner; `None` is the guest itself.
    pub(crate) account: Option<&'a Account>,
    pub(crate) mode: Mode,
}

/// Opens a directory of the system.
pub(crate) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens a directory of the system by its path below a root, and creates missing parts. Links to directories are
/// followed, as many images have them; a broken link, or anything else that is not a directory, is replaced, because
/// the instance would not work without the directory.
pub(crate) fn open_system_directory(root: &Path, path: &str) -> io::Result<OwnedFd> {
    let mut at = root.to_owned();
    for name in path.split('/') {
        at.push(name);
        if at.is_dir() {
            continue;
        }
        match fs::remove_file(&at) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => DirBuilder::new().mode(0o755).create(&at)?,
        }
    }
    open_directory(&at)
}

/// Opens a private directory of the guest inside another, creates it if it is missing, and ensures that no other user
/// can access it. If an image has something else of that name, it is replaced.
pub(crate) fn open_private_directory(parent: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    let owner = Owner { account: None, mode: Mode::RWXU };
    let opened = match open_or_create_below(&parent, name, owner) {
        Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::NOTDIR | Errno::LOOP)) => {
            rustix::fs::unlinkat(&parent, name, AtFlags::empty())?;
            open_or_create_below(&parent, name, owner)?
        }
        opened => opened?,
    };
    if rustix::process::geteuid().is_root() {
        rustix::fs::fchown(&opened, Some(Uid::ROOT), Some(Gid::ROOT))?;
    }
    rustix::fs::fchmod(&opened, owner.mode)?;
    Ok(opened)
}

/// Opens a directory inside another without following a link; creates it if it is missing.
pub(crate) fn open_or_create_below(parent: impl AsFd, name: &str, owner: Owner<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let is_new = match rustix::fs::mkdirat(&parent, name, owner.mode) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(e) => return Err(e.into()),
    };
    let directory = rustix::fs::openat(&parent, name, flags, Mode::empty())?;
    if is_new {
        set_ownership(&directory, owner)?;
    }
    Ok(directory)
}

/// Replaces a file atomically.
pub(crate) fn replace_file(directory: impl AsFd, name: &str, contents: &[u8], owner: Owner<'_>) -> io::Result<()> {
    let beside = format!(".{name}.tarn");
    match rustix::fs::unlinkat(&directory, &beside, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(e) => return Err(e.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&directory, &beside, flags, Mode::RUSR | Mode::WUSR)?;
    let mut file = File::from(file);
    let written = file.write_all(contents).and_then(|()| set_ownership(&file, owner));
    let renamed = written.and_then(|()| Ok(rustix::fs::renameat(&directory, &beside, &directory, name)?));
    if renamed.is_err() {
        // If the incomplete file cannot be removed, the next attempt removes it.
        let _ = rustix::fs::unlinkat(&directory, &beside, AtFlags::empty());
    }
    renamed
}

/// Reads a regular file without following a link and without blocking; `None` if there is none.
pub(crate) fn read_file(directory: impl AsFd, name: &str) -> io::Result<Option<(File, Vec<u8>)>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other(format!("{name} is not a regular file")));
    }
    let mut contents = Vec::new();
    Read::by_ref(&mut &file).take(MAX_FILE).read_to_end(&mut contents)?;
    Ok(Some((file, contents)))
}

fn set_ownership(file: impl AsFd, owner: Owner<'_>) -> io::Result<()> {
    if let Some(account) = owner.account
        && rustix::process::geteuid().is_root()
    {
        rustix::fs::fchown(&file, Some(Uid::from_raw(account.uid)), Some(Gid::from_raw(account.gid)))?;
    }
    Ok(rustix::fs::fchmod(&file, owner.mode)?)
}

/// Reads at most `most` bytes of a regular file, without blocking. Any other kind of file is an error.
pub(crate) fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other(format!("{} is not a regular file", path.display())));
    }
    let mut contents = Vec::new();
    file.take(most).read_to_end(&mut contents)?;
    Ok(contents)
}
