//! `/var` of the image, with the package database of `/usr`, so that more packages can be installed.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::copy;
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
