//! The processes of an attempt: finding them, asking them to end, and killing them.
//!
//! Processes may be started faster than they are killed. So they are stopped first, round by round, until no new ones
//! are found, because a stopped process starts no other. Then all are killed. If there are too many even for that, all
//! processes of the user are stopped by one system call, which no process can outrun, and those that do not belong to
//! the attempt are continued afterwards.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, Uid, kill_process};
use rustix::thread::set_thread_res_uid;
use tokio::time::Instant;

/// The maximum number of rounds that stop processes, and their total time.
const MAX_ROUNDS: usize = 10;
const SEARCH_TIMEOUT: Duration = Duration::from_millis(300);

/// The maximum length of an environment that is read.
const MAX_ENVIRONMENT: u64 = 4 << 20;

/// A set of processes.
#[derive(Clone, Copy, Debug)]
pub(in crate::jobs) enum ProcessSet<'a> {
    /// All descendants of a process.
    DescendantsOf(Pid),
    /// All processes whose environment has a variable (`NAME=value`), and their descendants.
    MarkedBy(&'a str),
}

impl ProcessSet<'_> {
    /// Finds the processes that exist now.
    pub(in crate::jobs) fn find_processes(self) -> Vec<Pid> {
        self.find_before(None).unwrap_or_default()
    }

    /// Like [`ProcessSet::find_processes`]; `None` if the deadline passes.
    fn find_before(self, deadline: Option<Instant>) -> Option<Vec<Pid>> {
        let living = living_processes(deadline)?;
        Some(match self {
            ProcessSet::DescendantsOf(ancestor) => descendants_of(&living, &HashSet::from([ancestor])),
            ProcessSet::MarkedBy(variable) => {
                let marked = living.keys().copied().filter(|pid| has_environment_variable(*pid, variable)).collect();
                let mut all = descendants_of(&living, &marked);
                all.extend(marked);
                all
            }
        })
    }

    /// Sends TERM to them and continues stopped ones; returns whether they could be found in time.
    pub(in crate::jobs) fn terminate(self) -> bool {
        let Some(all) = self.find_before(Some(Instant::now() + SEARCH_TIMEOUT)) else { return false };
        signal_each(&all, Signal::TERM);
        signal_each(&all, Signal::CONT);
        true
    }

    /// Returns whether one of them is in a process group.
    pub(in crate::jobs) fn any_in_group(self, group: Pid) -> bool {
        let found = self.find_before(Some(Instant::now() + SEARCH_TIMEOUT)).unwrap_or_default();
        found.iter().any(|pid| rustix::process::getpgid(Some(*pid)) == Ok(group))
    }

    /// Kills them, and everything they start meanwhile. If they are too many, all processes of the freezable user are
    /// stopped for a moment, if there is one.
    pub(in crate::jobs) fn kill_all(self, freezable: Option<Uid>) {
        let deadline = Instant::now() + SEARCH_TIMEOUT;
        let mut stopped = HashSet::new();
        for _ in 0..MAX_ROUNDS {
            let Some(found) = self.find_before(Some(deadline)) else { break };
            let new: Vec<Pid> = found.iter().copied().filter(|pid| !stopped.contains(pid)).collect();
            if new.is_empty() {
                // Not all that were stopped: one may have ended meanwhile, and its id may belong to another process.
                return signal_each(&found, Signal::KILL);
            }
            signal_each(&new, Signal::STOP);
            stopped.extend(new);
        }
        let freezable = freezable.filter(|user| signal_user(*user, Signal::STOP));
        signal_each(&self.find_processes(), Signal::KILL);
        freezable.map(|user| signal_user(user, Signal::CONT));
    }
}

/// Returns the user whose processes may be stopped for a moment: the user of an instance. Never root, which runs
/// everything else there, and never a user of a host that the guest shares.
pub(in crate::jobs) fn freezable_user(uid: u32, is_init: bool) -> Option<Uid> {
    let user = Uid::from_raw(uid);
    (is_init && !user.is_root() && rustix::process::geteuid().is_root()).then_some(user)
}

/// Sends a signal to all processes of a user in this instance with one call; returns whether that was possible.
fn signal_user(user: Uid, signal: Signal) -> bool {
    // The kernel signals all processes that the caller may signal. So this thread becomes the user for a moment; its
    // saved id stays root, so that it can return.
    if set_thread_res_uid(user, user, Uid::ROOT).is_err() {
        return false;
    }
    let sent = rustix::process::kill_process_group(Pid::INIT, signal);
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).expect("the saved id is root");
    sent.is_ok()
}

/// Sends a signal to each process. Processes that are gone are ignored.
fn signal_each<'a>(processes: impl IntoIterator<Item = &'a Pid>, signal: Signal) {
    for pid in processes {
        let _ = kill_process(*pid, signal);
    }
}

/// Returns whether the initial environment of a process has a variable.
fn has_environment_variable(pid: Pid, variable: &str) -> bool {
    let path = format!("/proc/{}/environ", pid.as_raw_pid());
    let environment = crate::filesystem::read_bounded(Path::new(&path), MAX_ENVIRONMENT).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
}

/// Returns the descendants of some processes.
fn descendants_of(living: &HashMap<Pid, Pid>, ancestors: &HashSet<Pid>) -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for (pid, parent) in living {
        children.entry(*parent).or_default().push(*pid);
    }
    let (mut found, mut next) = (Vec::new(), ancestors.iter().copied().collect::<Vec<_>>());
    while let Some(parent) = next.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            if !ancestors.contains(&child) {
                found.push(child);
                next.push(child);
            }
        }
    }
    found
}

/// Returns all living processes and their parents; `None` if the deadline passes.
fn living_processes(deadline: Option<Instant>) -> Option<HashMap<Pid, Pid>> {
    let mut living = HashMap::new();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            return None;
        }
        let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = parse_parent(&String::from_utf8_lossy(&stat)).and_then(Pid::from_raw);
        living.extend(Pid::from_raw(pid).zip(parent));
    }
    Some(living)
}

/// Parses the parent from `/proc/…/stat`; `None` for zombies. The name of a program is in parentheses and may contain
/// anything.
fn parse_parent(stat: &str) -> Option<i32> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_ascii_whitespace();
    let state = words.next()?;
    let parent = words.next()?.parse().ok()?;
    (state != "Z" && state != "X").then_some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parents are parsed even if the name of a program contains parentheses.
    #[test]
    fn parse_parent_skips_odd_names() {
        assert_eq!(parse_parent("12 (a) Z 7) S 34 12 12"), Some(34));
        assert_eq!(parse_parent("12 (sleep) Z 34 12 12"), None);
        assert_eq!(parse_parent("12"), None);
    }
}
