//! Processes with their threads. A process whose first thread has ended lives on with the others, although it looks
//! dead.

use std::fs;
use std::io;
use std::path::PathBuf;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::kernel::{SharedResource, threads_share};
use crate::local::host::processes::Process;

/// A process, identified by one of its live threads. A thread cannot move to another process, so while it exists the
/// pid belongs to this process.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) pid: u32,
    /// The first thread if it is alive, otherwise another one.
    pub(super) thread: Process,
}

impl Task {
    /// Finds the process that has this pid now, if it has a live thread.
    pub(super) fn find(pid: u32) -> io::Result<Option<Self>> {
        if let Some(thread) = Process::find(pid)? {
            return Ok(Some(Task { pid, thread }));
        }
        for thread in thread_ids(pid) {
            if let Some(thread) = Process::find(thread)? {
                return Ok(Some(Task { pid, thread }));
            }
        }
        Ok(None)
    }

    /// Returns whether the thread is still alive in this process.
    pub(super) fn alive(&self) -> io::Result<bool> {
        Ok(self.directory(self.thread.pid).exists() && self.thread.alive()?)
    }

    /// The directory in `/proc` of a thread of this process.
    pub(super) fn directory(&self, thread: u32) -> PathBuf {
        PathBuf::from(format!("/proc/{}/task/{thread}", self.pid))
    }

    /// The threads other than this one.
    pub(super) fn other_threads(&self) -> impl Iterator<Item = u32> {
        thread_ids(self.pid).filter(|thread| *thread != self.thread.pid)
    }

    /// Returns whether another thread shares a resource with this one.
    pub(super) fn shares(&self, what: SharedResource, other: u32) -> bool {
        threads_share(what, self.thread.pid, other)
    }

    /// Signals this process and no other: a pid may have been reused by now, a descriptor may not.
    pub(super) fn signal(&self, signals: &[Signal]) {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return };
        let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        if self.alive().unwrap_or(false) {
            for signal in signals {
                // It may be gone already.
                let _sent = pidfd_send_signal(&descriptor, *signal);
            }
        }
    }
}

fn thread_ids(pid: u32) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task knows the threads of its own process, and no other.
    #[test]
    fn task_knows_other_threads() {
        let own = Task::find(std::process::id()).unwrap().unwrap();
        assert!(own.alive().unwrap() && own.thread.pid == own.pid);
        let this = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        assert!(this == own.pid || own.other_threads().any(|other| other == this));
        let elsewhere = Task { pid: std::os::unix::process::parent_id(), ..own };
        assert!(!elsewhere.alive().unwrap(), "a thread of one process is none of another");
    }
}
