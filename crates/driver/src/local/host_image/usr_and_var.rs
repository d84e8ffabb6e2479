//! The part of the host's `/usr` that instances see, and `/var` of the image with the package database of `/usr`, so
//! that more packages can be installed.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::{copy, private, programs};
use crate::local::host::files;

const DIRECTORIES: &[(&str, u32)] = &[
    ("backups", 0o755),
    ("cache", 0o755),
    ("cache/apt", 0o755),
    ("cache/apt/archives", 0o755),
    ("cache/apt/archives/partial", 0o700),
    ("cache/debconf", 0o755),
    ("cache/ldconfig", 0o700),
    ("lib", 0o755),
    ("lib/apt", 0o755),
    ("lib/apt/lists", 0o755),
    ("lib/apt/lists/partial", 0o700),
    ("lib/apt/periodic", 0o755),
    ("lib/dpkg", 0o755),
    ("lib/dpkg/parts", 0o755),
    ("lib/dpkg/updates", 0o755),
    ("lib/misc", 0o755),
    ("lib/tarn", 0o700),
    ("local", 0o2775),
    ("log", 0o755),
    ("log/apt", 0o755),
    ("mail", 0o2775),
    ("opt", 0o755),
    ("spool", 0o755),
    ("tmp", 0o1777),
];

/// What is copied from the host.
const COPIED: &[&str] = &[
    "lib/apt/extended_states",
    "lib/dpkg/alternatives",
    "lib/dpkg/arch",
    "lib/dpkg/available",
    "lib/dpkg/diversions",
    "lib/dpkg/info",
    "lib/dpkg/statoverride",
    "lib/dpkg/status",
    "lib/dpkg/triggers",
    "lib/pam",
    "lib/python",
    "lib/ucf",
    "lib/xml-core",
];

pub(super) fn build_var(var: &Path) -> io::Result<()> {
    for (name, mode) in DIRECTORIES {
        files::ensure_directory(&var.join(name), *mode)?;
    }
    for name in COPIED {
        copy::copy_public(&Path::new("/var").join(name), &var.join(name))?;
    }
    fs::write(var.join("lib/dpkg/lock"), "")?;
    symlink("/run", var.join("run"))?;
    symlink("/run/lock", var.join("lock"))?;
    symlink("/var/mail", var.join("spool/mail"))
}

/// The visible entries of `/usr`.
const USR: &[&str] =
    &["bin", "games", "include", "lib", "lib32", "lib64", "libexec", "libx32", "local", "sbin", "share", "src"];

/// The visible entries of `/usr/local`, besides those with one of [`LOCAL_PREFIXES`].
const LOCAL: &[&str] = &["bin", "games", "include", "lib", "lib32", "lib64", "libexec", "man", "sbin", "share", "src"];

/// Programming languages and CUDA use their own directories.
const LOCAL_PREFIXES: &[&str] = &["cuda", "go", "julia", "node", "python", "rust"];

/// Debian asks this program before it starts the daemon of a package. An instance has no service manager, so none is
/// started.
const NO_SERVICES: (&str, &str) = ("sbin/policy-rc.d", "#!/bin/sh\nexit 101\n");

/// Returns the hidden entries, sorted, relative to `/usr`.
pub(super) fn hidden_paths() -> io::Result<Vec<PathBuf>> {
    let mut hidden = Vec::new();
    let local = |name: &str| LOCAL.contains(&name) || LOCAL_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    collect_hidden("", |name| USR.contains(&name), &mut hidden)?;
    collect_hidden("local", local, &mut hidden)?;
    hidden.sort();
    Ok(hidden)
}

fn collect_hidden(below: &str, shown: impl Fn(&str) -> bool, hidden: &mut Vec<PathBuf>) -> io::Result<()> {
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

/// Builds the layer that covers hidden and private files, and adds what every instance has.
pub(super) fn build_hiding_layer(layer: &Path, private: &[PathBuf]) -> io::Result<()> {
    files::ensure_directory(layer, 0o755)?;
    if Path::new("/usr/local").is_dir() {
        files::ensure_directory(&layer.join("local"), 0o755)?;
    }
    for name in hidden_paths()? {
        mknodat(CWD, layer.join(name), FileType::CharacterDevice, Mode::empty(), 0)?;
    }
    private::cover_private_files(Path::new("/usr"), private, layer)?;
    programs::copy_privileged_programs(Path::new("/usr"), layer)?;
    files::ensure_directory(&layer.join("sbin"), 0o755)?;
    let path = layer.join(NO_SERVICES.0);
    fs::write(&path, NO_SERVICES.1)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}
