//! Examining a machine: whether it has what instances, networks and volumes need, and what of an installation is there.
//!
//! Everything here only looks. It takes no lock of an engine, writes nothing into its data, and what has to be tried is tried in
//! namespaces that end with the try, so that it may be called beside an engine that runs. Each file is an area; what it returns
//! are [`crate::findings`].
//!
//! Start reading at [`kernel`]; [`sight`] is what an engine would observe.

mod cgroups;
mod clock;
mod gpus;
mod kernel;
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
pub use network::{addresses, firewall};
pub use process::capabilities::capabilities;
pub use process::examined_process::Subject;
pub use process::limits::limits;
pub use snapshot::{Pool, Sight, sight};
pub use space::{Place, space};
pub use tools::tools;
pub use trials::{mounts, networks};

/// What is said of a check that needs more than this process may do.
const AS_ROOT: &str = "run `tarn doctor` as root";

/// Whether this process may look at everything.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A setting of the kernel; empty where there is none.
fn setting(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// A setting of the kernel that is a number.
fn number(path: &str) -> Option<u64> {
    setting(path).parse().ok()
}

/// The directory itself, or the nearest above it that exists: what will be made there will be on the same disk.
fn existing(path: &Path) -> PathBuf {
    let mut found = path;
    while !found.exists() {
        match found.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => found = parent,
            _ => return PathBuf::from("."),
        }
    }
    found.to_owned()
}

/// Bytes for a person.
fn size(bytes: u64) -> String {
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
    fn what_is_not_there_yet_will_be_on_the_disk_above_it() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(existing(&place.path().join("a/b")), place.path());
        assert_eq!(existing(Path::new("no such thing/b")), Path::new("."));
        assert_eq!([size(7), size(3_456_789), size(65_000_000_000)], ["7 bytes", "3 MB", "65 GB"]);
    }
}
