//! What of the machine's `/usr` instances see.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::private;
use crate::local::files;

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

/// Makes the layer that covers what is not shown and what is private, and adds what every instance has.
pub(super) fn hide(layer: &Path, private: &[PathBuf]) -> io::Result<()> {
    files::ensure_directory(layer, 0o755)?;
    if Path::new("/usr/local").is_dir() {
        files::ensure_directory(&layer.join("local"), 0o755)?;
    }
    for name in hidden()? {
        mknodat(CWD, layer.join(name), FileType::CharacterDevice, Mode::empty(), 0)?;
    }
    private::cover(Path::new("/usr"), private, layer)?;
    files::ensure_directory(&layer.join("sbin"), 0o755)?;
    let path = layer.join(NO_SERVICES.0);
    fs::write(&path, NO_SERVICES.1)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}
