//! Processes of this machine, named so that a number that was given out again is not mistaken for the one before.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A process, for as long as the machine is up: its number alone would be given to another one later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::local) struct Process {
    /// Its number.
    pub(in crate::local) pid: u32,
    /// When it began, in the kernel's ticks since the machine came up.
    pub(in crate::local) started: u64,
    /// Which start of the machine that was.
    pub(in crate::local) boot_id: String,
}

impl Process {
    /// The process that has this number now, if there is one and it is not dead already.
    pub(in crate::local) fn find(pid: u32) -> io::Result<Option<Self>> {
        let Some(started) = start_time(pid)? else { return Ok(None) };
        Ok(Some(Process { pid, started, boot_id: boot_id()? }))
    }

    /// Whether it is alive. One that only waits for its parent to look at it is dead.
    pub(in crate::local) fn alive(&self) -> io::Result<bool> {
        Ok(start_time(self.pid)? == Some(self.started) && self.is_of_this_boot()?)
    }

    /// Whether the machine has been up since it began.
    pub(in crate::local) fn is_of_this_boot(&self) -> io::Result<bool> {
        Ok(boot_id()? == self.boot_id)
    }
}

/// Which start of the machine this is: the kernel draws another one each time.
pub(in crate::local) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// The number by which a process is known in the innermost of its namespaces.
pub(in crate::local) fn pid_in_namespace(process: &Path) -> Option<u32> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_ascii_whitespace().next_back()?.parse().ok()
}

/// When the process began, or `None` when there is none or it is dead.
fn start_time(pid: u32) -> io::Result<Option<u64>> {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => Ok(parse_start_time(&stat)),
        // A process that ends while it is read gives ESRCH.
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The name of the program stands in parentheses and may hold anything, so what follows is found from the end.
fn parse_start_time(stat: &str) -> Option<u64> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X" | "x")).then_some(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_number_in_its_own_namespace() {
        assert_eq!(pid_in_namespace(Path::new("/proc/self")), Some(std::process::id()));
        assert_eq!(pid_in_namespace(Path::new("/proc/0")), None);
    }

    #[test]
    fn this_process_is_alive() {
        let own = Process::find(std::process::id()).unwrap().unwrap();
        assert!(own.alive().unwrap());
        assert!(
            !Process { started: own.started + 1, ..own.clone() }.alive().unwrap(),
            "a later one of the same number"
        );
        assert!(!Process { boot_id: "another".into(), ..own }.alive().unwrap(), "one before the machine was restarted");
    }

    #[test]
    fn odd_names_and_dead_ones() {
        let fields = |state: &str| format!("7 (a) b ) {state} 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0");
        assert_eq!(parse_start_time(&fields("S")), Some(4711));
        assert_eq!(parse_start_time(&fields("Z")), None);
        assert_eq!(parse_start_time("nonsense"), None);
    }
}
