//! The engine as a process: its capabilities and its limits.

pub(super) mod capabilities;

use crate::findings::{Finding, Level};
use crate::local::examine::{read_number, read_setting};

/// The process that is examined: the running engine, or this process, which has what an engine started the same way
/// would have.
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

/// A limit of the kernel: the check, its file, its sysctl, the sufficient value, and what it limits.
type Limit = (&'static str, &'static str, &'static str, u64, &'static str);

/// The limit that each instance has for itself: the kernel counts it for the user that owns the instance's namespace.
const OWN: &str = "limits.inotify";

/// The limits. All except [`OWN`] are for everything on the host together.
const LIMITS: [Limit; 5] = [
    (OWN, "/proc/sys/fs/inotify/max_user_instances", "fs.inotify.max_user_instances", 128, "watchers of files"),
    ("limits.keys", "/proc/sys/kernel/keys/root_maxkeys", "kernel.keys.root_maxkeys", 10_000, "kernel keys of root"),
    ("limits.processes", "/proc/sys/kernel/pid_max", "kernel.pid_max", 65_536, "process numbers"),
    ("limits.threads", "/proc/sys/kernel/threads-max", "kernel.threads-max", 32_768, "threads"),
    (
        "limits.backlog",
        "/proc/sys/net/core/somaxconn",
        "net.core.somaxconn",
        1024,
        "connections that wait for each listener",
    ),
];

/// Fewer descriptors than this are soon used up: every connection needs one, and one from inside of an instance three.
const LEAST_FILES: u64 = 8192;

/// Checks all limits.
pub fn limits(of: ExaminedProcess) -> Vec<Finding> {
    let mut findings: Vec<_> = LIMITS.iter().map(|limit| judge_limit(limit, read_number(limit.1))).collect();
    findings.push(check_open_files(of.limit("Max open files"), of.name()));
    findings
}

fn judge_limit((check, _, setting, enough, what): &Limit, found: Option<u64>) -> Finding {
    match found {
        Some(found) if found >= *enough => Finding::ok(check, format!("{found} {what}")),
        Some(found) => Finding::note(
            check,
            match *check {
                OWN => format!("each instance has {found} {what}, which few programs can use up"),
                _ => format!("all instances together have {found} {what}, which many of them can use up"),
            },
            format!("sysctl -w {setting}={}; keep it in /etc/sysctl.d/tarn.conf", enough * 8),
        ),
        None => Finding::of(check, Level::Skipped, format!("this kernel does not report its limit of {what}"), ""),
    }
}

fn check_open_files(most: Option<u64>, who: &str) -> Finding {
    const CHECK: &str = "limits.files";
    match most {
        Some(most) if most < LEAST_FILES => Finding::warning(
            CHECK,
            format!("{who} may have only {most} files and connections open"),
            "raise it: LimitNOFILE=1048576 in the service, or `ulimit -Hn 1048576` where the engine is started",
        ),
        Some(most) => Finding::ok(CHECK, format!("{who} may have {most} files and connections open")),
        None => Finding::ok(CHECK, format!("{who} may have any number of files and connections open")),
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

    #[test]
    fn small_limits_are_reported_with_a_remedy() {
        let few = judge_limit(&LIMITS[0], Some(64));
        assert_eq!(few.level, Level::Note);
        assert!(few.todo.unwrap().contains("sysctl -w fs.inotify.max_user_instances=1024"));
        assert_eq!(judge_limit(&LIMITS[0], Some(128)).level, Level::Ok);
        assert_eq!(judge_limit(&LIMITS[0], None).level, Level::Skipped);
        assert_eq!(
            (check_open_files(Some(1024), "it").level, check_open_files(None, "it").level),
            (Level::Warning, Level::Ok)
        );
    }
}
