//! Processes of this host, identified so that a reused pid is not mistaken for the earlier process.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A process. Its pid alone could be given to another process later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::local) struct Process {
    pub(in crate::local) pid: u32,
    /// The start time in kernel ticks since the host booted.
    pub(in crate::local) started: u64,
    /// The boot of the host in which it started.
    pub(in crate::local) boot_id: String,
}

impl Process {
    /// Finds the process that has this pid now, if there is one and it is not a zombie.
    pub(in crate::local) fn find(pid: u32) -> io::Result<Option<Self>> {
        let Some(started) = start_time(pid)? else { return Ok(None) };
        Ok(Some(Process { pid, started, boot_id: boot_id()? }))
    }

    /// Returns whether the process is alive. A zombie is not.
    pub(in crate::local) fn alive(&self) -> io::Result<bool> {
        Ok(start_time(self.pid)? == Some(self.started) && self.is_of_this_boot()?)
    }

    /// Returns whether the host has not rebooted since the process started.
    pub(in crate::local) fn is_of_this_boot(&self) -> io::Result<bool> {
        Ok(boot_id()? == self.boot_id)
    }
}

/// The id of the current boot of the host, which the kernel generates anew each time.
pub(in crate::local) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// The pid of a process in the innermost of its namespaces.
pub(in crate::local) fn pid_in_namespace(process: &Path) -> Option<u32> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_ascii_whitespace().next_back()?.parse().ok()
}

/// The start time of a process; `None` when there is none or it is dead.
fn start_time(pid: u32) -> io::Result<Option<u64>> {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => Ok(parse_start_time(&stat)),
        // Reading a process that ends meanwhile gives ESRCH.
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The program name is in parentheses and may contain anything, so the fields after it are found from the end.
fn parse_start_time(stat: &str) -> Option<u64> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X" | "x")).then_some(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process has a pid in its own namespace.
    #[test]
    fn process_has_pid_in_namespace() {
        assert_eq!(pid_in_namespace(Path::new("/proc/self")), Some(std::process::id()));
        assert_eq!(pid_in_namespace(Path::new("/proc/0")), None);
    }

    /// This process is alive; another one with its pid is not taken for it.
    #[test]
    fn own_process_is_alive() {
        let own = Process::find(std::process::id()).unwrap().unwrap();
        assert!(own.alive().unwrap());
        assert!(
            !Process { started: own.started + 1, ..own.clone() }.alive().unwrap(),
            "a later process with the same pid"
        );
        assert!(!Process { boot_id: "another".into(), ..own }.alive().unwrap(), "a process before the host rebooted");
    }

    /// A program name may contain anything, and a zombie has no start time.
    #[test]
    fn stat_parser_handles_odd_names_and_zombies() {
        let fields = |state: &str| format!("7 (a) b ) {state} 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0");
        assert_eq!(parse_start_time(&fields("S")), Some(4711));
        assert_eq!(parse_start_time(&fields("Z")), None);
        assert_eq!(parse_start_time("nonsense"), None);
    }
}
