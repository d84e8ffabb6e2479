//! Whether one process uses a device, as its directory in `/proc` shows. Bound sockets are not shown there;
//! [`BoundSockets`] knows them.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::kernel::{SharedResource, threads_share};
use super::sockets::BoundSockets;
use crate::local::host::mount_tables;
use crate::local::host::processes::Process;

/// How much of a program name is kept.
const MAX_NAME: usize = 32;

/// A search for the users of a device, with a budget.
pub(super) struct Search {
    /// The number of the device.
    pub(super) device: u64,
    /// The sockets that are bound on the device.
    pub(super) sockets: BoundSockets,
    /// The mount namespace of the instance, as the kernel names it.
    pub(super) namespace: Option<PathBuf>,
    /// How many more threads and open files may be inspected.
    pub(super) budget: usize,
}

impl Search {
    /// Returns whether a process uses the device. What cannot be read no longer exists.
    pub(super) fn is_used_by(&mut self, task: &Task) -> bool {
        let own = task.directory(task.thread.pid);
        if self.is_directory_of(&own) || self.is_program_of(&own) || self.is_mounted_for(&own) || self.is_open_in(&own)
        {
            return true;
        }
        for other in task.other_threads() {
            if !self.take_budget() {
                break;
            }
            let directory = task.directory(other);
            // Threads nearly always share their files and directories; only a difference is inspected.
            if !task.shares(SharedResource::Directories, other) && self.is_directory_of(&directory)
                || !task.shares(SharedResource::Files, other) && self.is_open_in(&directory)
            {
                return true;
            }
        }
        false
    }

    fn take_budget(&mut self) -> bool {
        let more = self.budget.checked_sub(1);
        self.budget = more.unwrap_or_default();
        more.is_some()
    }

    fn is_directory_of(&self, thread: &Path) -> bool {
        ["cwd", "root"].iter().any(|name| self.is_on_device(&thread.join(name)))
    }

    fn is_program_of(&self, thread: &Path) -> bool {
        let mapped = format!("{:02x}:{:02x}", major(self.device), minor(self.device));
        let maps = || fs::read(thread.join("maps")).unwrap_or_default();
        self.is_on_device(&thread.join("exe"))
            || maps().split(|byte| *byte == b'\n').any(|line| nth_field(line, 3) == Some(mapped.as_bytes()))
    }

    /// A process with its own mount namespace has the volume mounted there even if it does nothing with it.
    fn is_mounted_for(&self, thread: &Path) -> bool {
        let elsewhere = fs::read_link(thread.join("ns/mnt")).is_ok_and(|own| Some(own) != self.namespace);
        let table = if elsewhere { fs::read(thread.join("mountinfo")).unwrap_or_default() } else { Vec::new() };
        mount_tables::parse_mounts(&table).any(|mount| mount.device == self.device)
    }

    fn is_open_in(&mut self, thread: &Path) -> bool {
        let descriptors = fs::read_dir(thread.join("fd")).into_iter().flatten().flatten();
        for descriptor in descriptors {
            if !self.take_budget() {
                break;
            }
            if self.is_on_device(&descriptor.path()) {
                return true;
            }
        }
        false
    }

    fn is_on_device(&self, path: &Path) -> bool {
        let is_on_it = |found: Metadata| found.dev() == self.device || self.sockets.contains(found.dev(), found.ino());
        fs::metadata(path).is_ok_and(is_on_it)
    }
}

fn nth_field(line: &[u8], number: usize) -> Option<&[u8]> {
    line.split(|byte| *byte == b' ').nth(number)
}

/// Returns whether a process is in a control group or in one of its descendants.
pub(super) fn is_in_cgroup(process: &Path, group: &Path) -> bool {
    let groups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    groups.lines().filter_map(|line| line.splitn(3, ':').nth(2)).any(|own| Path::new(own).starts_with(group))
}

/// The name of a program, reduced to plain characters, because the tenant chooses it.
pub(super) fn program_name(process: &Path) -> String {
    let name = fs::read(process.join("comm")).unwrap_or_default();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.+:@".contains(byte);
    let name: String = name.into_iter().filter(plain).take(MAX_NAME).map(char::from).collect();
    if name.is_empty() { "a program".into() } else { name }
}

/// A process, identified by one of its live threads. A thread cannot move to another process, so while it exists the
/// pid belongs to this process. A process whose first thread has ended lives on with the others, although it looks
/// dead.
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

    /// A running program and an open file count as a use of their device.
    #[test]
    fn program_and_open_file_count_as_use() {
        let own = Task::find(std::process::id()).unwrap().unwrap();
        let [disk, files] = ["/proc/self/exe", "/proc/self/stat"].map(|path| fs::metadata(path).unwrap().dev());
        let namespace = fs::read_link("/proc/self/ns/mnt").ok();
        let search =
            |device| Search { device, sockets: BoundSockets::default(), namespace: namespace.clone(), budget: 1_000 };
        assert!(search(disk).is_used_by(&own), "it runs from there");
        let _open = fs::File::open("/proc/self/stat").unwrap();
        assert!(search(files).is_used_by(&own), "a file is open there");
        assert!(!search(u64::MAX).is_used_by(&own));
    }

    /// Program names lose everything but plain characters.
    #[test]
    fn program_names_are_plain() {
        let directory = tempfile::tempdir().unwrap();
        for (name, kept) in [("python3\n", "python3"), ("\u{1b}[2J(x) y", "2Jxy"), ("\n", "a program")] {
            fs::write(directory.path().join("comm"), name).unwrap();
            assert_eq!(program_name(directory.path()), kept);
        }
    }

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
