//! What of the machine's `/usr` instances see.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::super::files;

/// What lies directly in `/usr` and is for everybody.
const USR: &[&str] =
    &["bin", "games", "include", "lib", "lib32", "lib64", "libexec", "libx32", "local", "sbin", "share", "src"];

/// What lies directly in `/usr/local`; what begins with one of [`LOCAL_PREFIXES`] comes besides.
const LOCAL: &[&str] = &["bin", "games", "include", "lib", "lib32", "lib64", "libexec", "man", "sbin", "share", "src"];

/// Programming languages and CUDA put themselves into directories of their own.
const LOCAL_PREFIXES: &[&str] = &["cuda", "go", "julia", "node", "python", "rust"];

/// A daemon that a package brings must not be started in an instance, which has no service manager. Debian asks this program.
const NO_SERVICES: (&str, &str) = ("sbin/policy-rc.d", "#!/bin/sh\nexit 101\n");

/// What is there and is not shown, relative to `/usr`, in order.
pub(super) fn hidden() -> io::Result<Vec<PathBuf>> {
    let mut hidden = Vec::new();
    let local = |name: &str| LOCAL.contains(&name) || LOCAL_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    collect("", |name| USR.contains(&name), &mut hidden)?;
    collect("local", local, &mut hidden)?;
    hidden.sort();
    Ok(hidden)
}

fn collect(below: &str, shown: impl Fn(&str) -> bool, hidden: &mut Vec<PathBuf>) -> io::Result<()> {
    let entries = match fs::read_dir(Path::new("/usr").join(below)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        if !name.to_str().is_some_and(&shown) {
            hidden.push(Path::new(below).join(name));
        }
    }
    Ok(())
}

/// Makes the layer that covers what is not shown, and adds what every instance has: the overlay takes a device 0/0 as the
/// sign that there is nothing.
pub(super) fn hide(layer: &Path) -> io::Result<()> {
    files::ensure_directory(layer, 0o755)?;
    if Path::new("/usr/local").is_dir() {
        files::ensure_directory(&layer.join("local"), 0o755)?;
    }
    let hidden = hidden()?;
    for name in &hidden {
        mknodat(CWD, layer.join(name), FileType::CharacterDevice, Mode::empty(), 0)?;
    }
    hide_private(Path::new("/usr"), Path::new(""), layer, &hidden)?;
    files::ensure_directory(&layer.join("sbin"), 0o755)?;
    let path = layer.join(NO_SERVICES.0);
    fs::write(&path, NO_SERVICES.1)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

/// Covers what not everybody on the machine may read. Root of an instance is the owner of what the machine's root owns here, so the
/// mode alone would not keep it out.
fn hide_private(usr: &Path, below: &Path, layer: &Path, hidden: &[PathBuf]) -> io::Result<()> {
    for entry in fs::read_dir(usr.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        let Ok(found) = entry.metadata() else { continue };
        let needed = if found.is_dir() { 0o005 } else { 0o004 };
        if found.is_symlink() || hidden.contains(&path) {
            continue;
        }
        if found.mode() & needed != needed {
            make_parents(usr, below, layer)?;
            mknodat(CWD, layer.join(&path), FileType::CharacterDevice, Mode::empty(), 0)?;
        } else if found.is_dir() {
            hide_private(usr, &path, layer, hidden)?;
        }
    }
    Ok(())
}

/// A directory of the upper layer lends the one below its owner and its mode, so they must be the same.
fn make_parents(usr: &Path, below: &Path, layer: &Path) -> io::Result<()> {
    let mut parents: Vec<&Path> = below.ancestors().filter(|parent| !parent.as_os_str().is_empty()).collect();
    parents.reverse();
    for parent in parents {
        let found = fs::metadata(usr.join(parent))?;
        files::ensure_directory(&layer.join(parent), found.mode() & 0o7777)?;
        chown(layer.join(parent), Some(found.uid()), Some(found.gid()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_private_is_covered() {
        let machine = tempfile::tempdir().unwrap();
        let (usr, layer) = (machine.path().join("usr"), machine.path().join("layer"));
        let file = |name: &str, mode: u32| {
            let path = usr.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, name).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        for (name, mode) in [("bin/tool", 0o755), ("lib/deep/password", 0o600), ("lib/deep/open", 0o644)] {
            file(name, mode);
        }
        file("lib/closed/inner", 0o644);
        fs::set_permissions(usr.join("lib/closed"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::create_dir(&layer).unwrap();
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root makes devices");
            return;
        }
        hide_private(&usr, Path::new(""), &layer, &[]).unwrap();
        let covered =
            |name: &str| fs::symlink_metadata(layer.join(name)).is_ok_and(|found| found.rdev() == 0 && !found.is_dir());
        assert!(covered("lib/deep/password") && covered("lib/closed"));
        assert!(!layer.join("lib/deep/open").exists() && !layer.join("bin").exists());
    }
}
