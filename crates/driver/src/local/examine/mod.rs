//! Examines a host: whether it has what instances, networks and volumes need, and what exists of an installation.
//!
//! Everything here is read-only. It takes no lock of an engine and writes nothing into its data; trials run in
//! namespaces that end with them. So it may be called beside a running engine. Each file is an area, and returns
//! [`crate::findings`].
//!
//! Start reading at [`kernel`]; [`snapshot`] is what an engine would observe.

mod cgroups;
mod clock;
mod gpus;
mod kernel;
mod lxcfs;
mod network;
mod process;
mod snapshot;
mod space;
mod tools;
mod trials;

use std::fs;
use std::path::{Path, PathBuf};

pub use cgroups::cgroups;
pub use clock::clock;
pub use gpus::gpus;
pub use kernel::kernel;
pub use lxcfs::lxcfs;
pub use network::{addresses, firewall};
pub use process::ExaminedProcess;
pub use process::capabilities::capabilities;
pub use process::limits;
pub use snapshot::{Pool, Snapshot, snapshot};
pub use space::{DiskLocation, space};
pub use tools::tools;
pub use trials::{mounts, networks};

/// The advice of checks that need root.
const AS_ROOT: &str = "run `tarn doctor` as root";

/// Returns whether this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Reads a setting of the kernel; empty if it does not exist.
fn read_setting(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Reads a numeric setting of the kernel.
fn read_number(path: &str) -> Option<u64> {
    read_setting(path).parse().ok()
}

/// Returns the path itself or its nearest existing ancestor: what is created there later will be on the same disk.
fn nearest_existing(path: &Path) -> PathBuf {
    let mut found = path;
    while !found.exists() {
        match found.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => found = parent,
            _ => return PathBuf::from("."),
        }
    }
    found.to_owned()
}

/// Formats a size for people.
fn format_size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{bytes} bytes"),
        1_000_000..10_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{} GB", bytes / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_path_resolves_to_its_ancestor() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(nearest_existing(&place.path().join("a/b")), place.path());
        assert_eq!(nearest_existing(Path::new("no such thing/b")), Path::new("."));
        assert_eq!([format_size(7), format_size(3_456_789), format_size(65_000_000_000)], ["7 bytes", "3 MB", "65 GB"]);
    }
}
