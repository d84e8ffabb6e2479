//! Whether an engine runs on a data directory: a running engine holds a lock there. The test takes a shared lock for a
//! moment; an engine that starts at the same time tries again.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;

/// The files that an engine locks: the first with SQLite, the second with the local driver.
const LOCKS: [&str; 2] = ["lock", "instances.lock"];

/// Whether an engine runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::doctor) enum EngineState {
    /// An engine runs; its process ID, if this user may see it.
    Running { pid: Option<u32> },
    /// No engine runs.
    Stopped,
    /// This user may not read the directory.
    Unknown,
}

/// Finds the engine of a data directory.
pub(in crate::doctor) fn find_engine(data: &Path) -> EngineState {
    for name in LOCKS {
        let path = data.join(name);
        let held = match File::open(&path) {
            Ok(file) => matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return EngineState::Unknown,
            Err(_) => false,
        };
        if held {
            return EngineState::Running { pid: lock_holder(&path) };
        }
    }
    EngineState::Stopped
}

/// The process that has a file open, if this user may see it.
fn lock_holder(path: &Path) -> Option<u32> {
    let wanted = fs::canonicalize(path).ok()?;
    process_ids().find(|pid| *pid != std::process::id() && has_open(*pid, |target| target == wanted))
}

/// The IDs of all processes.
pub(in crate::doctor) fn process_ids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a process has a matching file open.
pub(in crate::doctor) fn has_open(pid: u32, is_meant: impl Fn(&Path) -> bool) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| is_meant(&target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_lock_means_running() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(find_engine(data.path()), EngineState::Stopped);
        let lock = File::create(data.path().join("lock")).unwrap();
        assert_eq!(find_engine(data.path()), EngineState::Stopped, "an unlocked file is not an engine");
        lock.lock().unwrap();
        assert!(matches!(find_engine(data.path()), EngineState::Running { .. }));
        drop(lock);
        assert_eq!(find_engine(data.path()), EngineState::Stopped);
    }
}
