//! What must exist before the first login. All of it may be repeated at any start, and it happens before any process of
//! the user runs, so no process can interfere.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{Mode, StatVfsMountFlags};

use crate::filesystem::open_system_directory;
use crate::users::Account;

/// Creates the directories that programs expect, and fills the home directory.
pub fn prepare_instance(root: &Path, account: &Account) -> io::Result<()> {
    for open_to_all in ["run/lock", "tmp"] {
        rustix::fs::fchmod(open_system_directory(root, open_to_all)?, Mode::from_raw_mode(0o1777))?;
    }
    let home = &account.home;
    if !home.exists() {
        fs::create_dir_all(home)?;
        fs::set_permissions(home, fs::Permissions::from_mode(0o755))?;
        std::os::unix::fs::lchown(home, Some(account.uid), Some(account.gid))?;
    }
    let is_empty = fs::read_dir(home)?.next().is_none();
    let skeleton = root.join("etc/skel");
    if is_empty && skeleton.is_dir() {
        copy_skeleton(&skeleton, home, account)?;
    }
    Ok(())
}

fn copy_skeleton(from: &Path, to: &Path, account: &Account) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            fs::create_dir(&target)?;
            fs::set_permissions(&target, entry.metadata()?.permissions())?;
            copy_skeleton(&source, &target, account)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&source)?, &target)?;
        } else if kind.is_file() {
            fs::copy(&source, &target)?;
        } else {
            continue;
        }
        std::os::unix::fs::lchown(&target, Some(account.uid), Some(account.gid))?;
    }
    Ok(())
}

/// Installs the guest's `sudo` if the image has none that works: a setuid copy of this program. Returns whether it was
/// needed.
pub fn install_sudo(root: &Path, program: &Path) -> io::Result<bool> {
    let (own, theirs) = (root.join("usr/local/bin/sudo"), root.join("usr/bin/sudo"));
    if is_setuid_root(&theirs) && root.join("etc/sudoers").is_file() {
        return Ok(false);
    }
    if is_setuid_root(&own) && have_equal_contents(&own, program)? {
        return Ok(false);
    }
    fs::create_dir_all(root.join("usr/local/bin"))?;
    install_setuid_copy(program, &own)?;
    Ok(true)
}

/// Installs a setuid-root copy of a program atomically.
pub(super) fn install_setuid_copy(program: &Path, own: &Path) -> io::Result<()> {
    let beside = own.with_file_name(".sudo.tarn");
    match fs::remove_file(&beside) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    fs::copy(program, &beside)?;
    std::os::unix::fs::chown(&beside, Some(0), Some(0))?;
    // The setuid bit comes last: a change of the owner would clear it.
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o4755))?;
    fs::rename(&beside, own)
}

/// Returns whether two files have the same contents: a restarted instance may have a newer guest.
pub(super) fn have_equal_contents(one: &Path, other: &Path) -> io::Result<bool> {
    let (one, other) = (fs::File::open(one)?, fs::File::open(other)?);
    let length = one.metadata()?.len();
    if length != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut left, mut right, mut at) = ([0; 16 << 10], [0; 16 << 10], 0);
    while at < length {
        let piece = usize::try_from(length - at).unwrap_or(usize::MAX).min(left.len());
        one.read_exact_at(&mut left[..piece], at)?;
        other.read_exact_at(&mut right[..piece], at)?;
        if left[..piece] != right[..piece] {
            return Ok(false);
        }
        at += piece as u64;
    }
    Ok(true)
}

/// Returns whether a program runs as root: root owns it, it has the setuid bit, and its filesystem honours the bit.
pub(super) fn is_setuid_root(program: &Path) -> bool {
    let becomes_root = fs::metadata(program).is_ok_and(|m| m.is_file() && m.uid() == 0 && m.mode() & 0o4001 == 0o4001);
    becomes_root && rustix::fs::statvfs(program).is_ok_and(|fs| !fs.f_flag.contains(StatVfsMountFlags::NOSUID))
}
