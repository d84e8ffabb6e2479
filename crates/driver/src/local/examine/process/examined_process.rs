//! The process whose capabilities and limits are examined: the running engine, or this process, which has what an
//! engine started the same way would have.

use crate::local::examine::read_setting;

/// An examined process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExaminedProcess(Option<u32>);

impl ExaminedProcess {
    /// The engine with this process id, or this process.
    pub fn of(host: Option<u32>) -> ExaminedProcess {
        ExaminedProcess(host)
    }

    /// Returns how findings refer to it.
    pub(in crate::local::examine) fn name(self) -> &'static str {
        if self.0.is_some() { "the engine" } else { "this process" }
    }

    /// Reads a file of the kernel about it; empty if it does not exist.
    pub(in crate::local::examine) fn proc_file(self, name: &str) -> String {
        match self.0 {
            Some(pid) => read_setting(format!("/proc/{pid}/{name}")),
            None => read_setting(format!("/proc/self/{name}")),
        }
    }

    /// Returns its hard limit by the name in `/proc/PID/limits`; `None` if there is no limit or it is unknown.
    pub(in crate::local::examine) fn limit(self, name: &str) -> Option<u64> {
        self.proc_file("limits").lines().find_map(|line| line.strip_prefix(name)).and_then(|rest| {
            // The soft limit, the hard one, and the unit.
            rest.split_whitespace().nth(1)?.parse().ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_process_is_read_by_its_own_files() {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "ulimit -n 64; echo ready; exec sleep 60"]).stdout(std::process::Stdio::piped());
        let mut sleep = command.spawn().unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(sleep.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let (other, own) = (ExaminedProcess::of(Some(sleep.id())), ExaminedProcess::of(None));
        let found = (other.limit("Max open files"), other.proc_file("status"));
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert_eq!(found.0, Some(64));
        assert!(found.1.contains(&format!("Pid:\t{}", sleep.id())), "{}", found.1);
        assert!(own.proc_file("status").contains(&format!("Pid:\t{}", std::process::id())));
        assert_eq!((other.name(), own.name()), ("the engine", "this process"));
    }
}
