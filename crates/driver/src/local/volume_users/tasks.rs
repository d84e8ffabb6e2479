//! Processes with their threads. A process whose first thread has ended lives on with the others, though it looks dead.

use std::fs;
use std::io;
use std::path::PathBuf;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::kernel::{SharedResource, threads_share};
use crate::local::host::processes::Process;

/// A process, known by one of its threads that lives. That one cannot go over to another process, so while it is there
/// the number is that of this process.
#[derive(Clone, Debug)]
pub(super) struct Task {
    /// The number of the process.
    pub(super) pid: u32,
    /// The thread: the first one, if it lives.
    pub(super) thread: Process,
}

impl Task {
    /// The process that has this number now, if there is one with a thread that lives.
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

    /// Whether the thread lives still, in this process.
    pub(super) fn alive(&self) -> io::Result<bool> {
        Ok(self.directory(self.thread.pid).exists() && self.thread.alive()?)
    }

    /// What the kernel tells of a thread of this process.
    pub(super) fn directory(&self, thread: u32) -> PathBuf {
        PathBuf::from(format!("/proc/{}/task/{thread}", self.pid))
    }

    /// The threads besides this one.
    pub(super) fn other_threads(&self) -> impl Iterator<Item = u32> {
        thread_ids(self.pid).filter(|thread| *thread != self.thread.pid)
    }

    /// Whether another thread shares something with this one.
    pub(super) fn shares(&self, what: SharedResource, other: u32) -> bool {
        threads_share(what, self.thread.pid, other)
    }

    /// Signals this process and no other: a number may have been given to another one by now, a descriptor is not.
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

    #[test]
    fn this_process_has_other_threads() {
        let own = Task::find(std::process::id()).unwrap().unwrap();
        assert!(own.alive().unwrap() && own.thread.pid == own.pid);
        let this = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        assert!(this == own.pid || own.other_threads().any(|other| other == this));
        let elsewhere = Task { pid: std::os::unix::process::parent_id(), ..own };
        assert!(!elsewhere.alive().unwrap(), "a thread of one process is none of another");
    }
}
