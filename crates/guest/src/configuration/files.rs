//! Writing files whole or not at all, also into directories of the user, where links are not followed: the guest is root,
//! and the user must not be able to make it write elsewhere.
//!
//! Nothing is synced. If the machine dies, the engine starts the instance anew and configures it again, and a state that
//! cannot be read counts as none.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use crate::accounts::Account;

/// The longest file that is read.
const MAX_FILE: u64 = 8 << 20;

/// Whose a file will be, and who may read it.
#[derive(Clone, Copy)]
pub(crate) struct Owner<'a> {
    /// The user; nobody means the guest's own.
    pub(crate) account: Option<&'a Account>,
    /// The permissions.
    pub(crate) mode: Mode,
}

/// Opens a directory of the system.
pub(crate) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens a directory of the system by its path below a root, and makes what is missing of it. A link may lead to it, as in many
/// images; what leads nowhere, or is no directory, has to make way, because without it the instance would be of no use.
pub(crate) fn system_directory(root: &Path, path: &str) -> io::Result<OwnedFd> {
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

/// Opens a directory of the guest's own inside another, makes it if it is missing, and sees to it that nobody else gets in. An
/// image may have something else of that name, which has to make way.
pub(crate) fn own_directory(parent: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    let owner = Owner { account: None, mode: Mode::RWXU };
    let opened = match directory_below(&parent, name, owner) {
        Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::NOTDIR | Errno::LOOP)) => {
            rustix::fs::unlinkat(&parent, name, AtFlags::empty())?;
            directory_below(&parent, name, owner)?
        }
        opened => opened?,
    };
    if rustix::process::geteuid().is_root() {
        rustix::fs::fchown(&opened, Some(Uid::ROOT), Some(Gid::ROOT))?;
    }
    rustix::fs::fchmod(&opened, owner.mode)?;
    Ok(opened)
}

/// Opens a directory inside another, without following a link; makes it if it is missing.
pub(crate) fn directory_below(parent: impl AsFd, name: &str, owner: Owner<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let is_new = match rustix::fs::mkdirat(&parent, name, owner.mode) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(e) => return Err(e.into()),
    };
    let directory = rustix::fs::openat(&parent, name, flags, Mode::empty())?;
    if is_new {
        give(&directory, owner)?;
    }
    Ok(directory)
}

/// Replaces a file.
pub(crate) fn replace(directory: impl AsFd, name: &str, contents: &[u8], owner: Owner<'_>) -> io::Result<()> {
    let beside = format!(".{name}.tarn");
    match rustix::fs::unlinkat(&directory, &beside, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(e) => return Err(e.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&directory, &beside, flags, Mode::RUSR | Mode::WUSR)?;
    let mut file = File::from(file);
    let written = file.write_all(contents).and_then(|()| give(&file, owner));
    let renamed = written.and_then(|()| Ok(rustix::fs::renameat(&directory, &beside, &directory, name)?));
    if renamed.is_err() {
        // What is half done is of no use to anybody; if it cannot be removed, the next try does.
        let _ = rustix::fs::unlinkat(&directory, &beside, AtFlags::empty());
    }
    renamed
}

/// Reads an ordinary file without following a link or waiting for anybody; `None` if there is none.
pub(crate) fn read(directory: impl AsFd, name: &str) -> io::Result<Option<(File, Vec<u8>)>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other(format!("{name} is not an ordinary file")));
    }
    let mut contents = Vec::new();
    Read::by_ref(&mut &file).take(MAX_FILE).read_to_end(&mut contents)?;
    Ok(Some((file, contents)))
}

fn give(file: impl AsFd, owner: Owner<'_>) -> io::Result<()> {
    if let Some(account) = owner.account
        && rustix::process::geteuid().is_root()
    {
        rustix::fs::fchown(&file, Some(Uid::from_raw(account.uid)), Some(Gid::from_raw(account.gid)))?;
    }
    Ok(rustix::fs::fchmod(&file, owner.mode)?)
}
