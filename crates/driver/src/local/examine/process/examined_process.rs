//! Whose privileges and limits are looked at: those of the engine that runs, or of this process, as an engine that is started the
//! same way would have them.

use crate::local::examine::setting;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject(Option<u32>);

impl Subject {
    /// The engine of this number, or this process where none is known.
    pub fn of(host: Option<u32>) -> Subject {
        Subject(host)
    }

    /// What it is called in a sentence.
    pub(in crate::local::examine) fn name(self) -> &'static str {
        if self.0.is_some() { "the engine" } else { "this process" }
    }

    /// A file of the kernel about it; empty where there is none.
    pub(in crate::local::examine) fn file(self, name: &str) -> String {
        match self.0 {
            Some(pid) => setting(format!("/proc/{pid}/{name}")),
            None => setting(format!("/proc/self/{name}")),
        }
    }

    /// Its limit of something, as `/proc/PID/limits` calls it; `None` where there is no limit, or none is told.
    pub(in crate::local::examine) fn most(self, name: &str) -> Option<u64> {
        self.file("limits").lines().find_map(|line| line.strip_prefix(name)).and_then(|rest| {
            // The soft limit, the hard one, and the unit.
            rest.split_whitespace().nth(1)?.parse().ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_is_looked_at_by_its_own_files() {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "ulimit -n 64; echo ready; exec sleep 60"]).stdout(std::process::Stdio::piped());
        let mut sleep = command.spawn().unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(sleep.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let (other, own) = (Subject::of(Some(sleep.id())), Subject::of(None));
        let found = (other.most("Max open files"), other.file("status"));
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert_eq!(found.0, Some(64));
        assert!(found.1.contains(&format!("Pid:\t{}", sleep.id())), "{}", found.1);
        assert!(own.file("status").contains(&format!("Pid:\t{}", std::process::id())));
        assert_eq!((other.name(), own.name()), ("the engine", "this process"));
    }
}
