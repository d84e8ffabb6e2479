//! Whether an engine runs on a data directory: it holds a lock there for as long as it lives. Asking takes the lock in a way
//! that several may have at once, for the moment of the question; an engine that starts just then tries again.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;

/// The files that an engine locks: with SQLite the first one, and with machines of its own the second one.
const LOCKS: [&str; 2] = ["lock", "instances.lock"];

/// Whether one runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Running {
    /// One does; its number, where that can be seen.
    Here { pid: Option<u32> },
    /// None does.
    Nowhere,
    /// The directory is closed to this user.
    Unknown,
}

/// Looks for one.
pub(super) fn find(data: &Path) -> Running {
    for name in LOCKS {
        let path = data.join(name);
        let held = match File::open(&path) {
            Ok(file) => matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Running::Unknown,
            Err(_) => false,
        };
        if held {
            return Running::Here { pid: holder(&path) };
        }
    }
    Running::Nowhere
}

/// The process that has a file open, as far as this user may see it.
fn holder(path: &Path) -> Option<u32> {
    let wanted = fs::canonicalize(path).ok()?;
    processes().find(|pid| *pid != std::process::id() && opens(*pid, |target| target == wanted))
}

/// The numbers of all processes.
pub(super) fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a process has something open.
pub(super) fn opens(pid: u32, is_meant: impl Fn(&Path) -> bool) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| is_meant(&target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_the_lock_runs() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(find(data.path()), Running::Nowhere);
        let lock = File::create(data.path().join("lock")).unwrap();
        assert_eq!(find(data.path()), Running::Nowhere, "a file alone is no engine");
        lock.lock().unwrap();
        assert!(matches!(find(data.path()), Running::Here { .. }));
        drop(lock);
        assert_eq!(find(data.path()), Running::Nowhere);
    }
}
