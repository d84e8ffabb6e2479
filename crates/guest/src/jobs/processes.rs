//! The processes of an attempt: finding them, asking them to end, and ending them.
//!
//! Somebody may start processes faster than they are ended. So they are stopped first, round by round, until no new ones are
//! found: who is stopped starts nobody. Then all are killed. Where they are too many even for that, everything of the user is
//! stopped by one call, which nobody can outrun, and whoever does not belong to the attempt goes on afterwards.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, Uid, kill_process};
use rustix::thread::set_thread_res_uid;
use tokio::time::Instant;

/// How many rounds are made to stop everybody, and how long they may take altogether.
const MAX_ROUNDS: usize = 10;
const MAX_SEARCH: Duration = Duration::from_millis(300);

/// The longest environment that is looked at.
const MAX_ENVIRONMENT: u64 = 4 << 20;

/// Which processes are meant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Who<'a> {
    /// All that a process started, and those they started.
    DescendantsOf(Pid),
    /// All whose environment has a variable (`NAME=value`), and those they started.
    MarkedBy(&'a str),
}

impl Who<'_> {
    /// Those that there are now.
    pub(super) fn find(self) -> Vec<Pid> {
        self.find_until(None).unwrap_or_default()
    }

    /// The same, unless it takes too long.
    fn find_until(self, deadline: Option<Instant>) -> Option<Vec<Pid>> {
        let living = living(deadline)?;
        Some(match self {
            Who::DescendantsOf(ancestor) => below(&living, &HashSet::from([ancestor])),
            Who::MarkedBy(variable) => {
                let marked = living.keys().copied().filter(|pid| has_variable(*pid, variable)).collect();
                let mut all = below(&living, &marked);
                all.extend(marked);
                all
            }
        })
    }

    /// Asks them to end, also those that somebody stopped; whether they could be found in time.
    pub(super) fn ask(self) -> bool {
        let Some(all) = self.find_until(Some(Instant::now() + MAX_SEARCH)) else { return false };
        signal_all(&all, Signal::TERM);
        signal_all(&all, Signal::CONT);
        true
    }

    /// Whether one of them is known to be in a process group.
    pub(super) fn are_in_group(self, group: Pid) -> bool {
        let found = self.find_until(Some(Instant::now() + MAX_SEARCH)).unwrap_or_default();
        found.iter().any(|pid| rustix::process::getpgid(Some(*pid)) == Ok(group))
    }

    /// Kills them, and whoever they start meanwhile. Where they are too many, everything of the user is held for a moment,
    /// if there is one who may be.
    pub(super) fn kill(self, held: Option<Uid>) {
        let deadline = Instant::now() + MAX_SEARCH;
        let mut stopped = HashSet::new();
        for _ in 0..MAX_ROUNDS {
            let Some(found) = self.find_until(Some(deadline)) else { break };
            let new: Vec<Pid> = found.iter().copied().filter(|pid| !stopped.contains(pid)).collect();
            if new.is_empty() {
                // Not all who were stopped: one may be gone meanwhile, and his number somebody else's.
                return signal_all(&found, Signal::KILL);
            }
            signal_all(&new, Signal::STOP);
            stopped.extend(new);
        }
        let held = held.filter(|user| signal_everything_of(*user, Signal::STOP));
        signal_all(&self.find(), Signal::KILL);
        held.map(|user| signal_everything_of(user, Signal::CONT));
    }
}

/// Who may be held: the user of an instance. Never root, who runs everything else there, and never anybody on a machine that the
/// guest does not have for itself.
pub(super) fn may_be_held(uid: u32, is_init: bool) -> Option<Uid> {
    let user = Uid::from_raw(uid);
    (is_init && !user.is_root() && rustix::process::geteuid().is_root()).then_some(user)
}

/// Sends a signal to everything that a user runs in this instance, at one stroke; whether that was possible.
fn signal_everything_of(user: Uid, signal: Signal) -> bool {
    // The kernel sends it to all whom the caller may signal. So this thread is the user for a moment; it stays root in what is
    // saved, and can return.
    if set_thread_res_uid(user, user, Uid::ROOT).is_err() {
        return false;
    }
    let sent = rustix::process::kill_process_group(Pid::INIT, signal);
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).expect("what is saved can be taken back");
    sent.is_ok()
}

/// Sends everybody a signal. Who is gone needs none.
fn signal_all<'a>(processes: impl IntoIterator<Item = &'a Pid>, signal: Signal) {
    for pid in processes {
        let _ = kill_process(*pid, signal);
    }
}

/// Whether the environment that a process began with has a variable.
fn has_variable(pid: Pid, variable: &str) -> bool {
    let path = format!("/proc/{}/environ", pid.as_raw_pid());
    let environment = crate::bounded::read(Path::new(&path), MAX_ENVIRONMENT).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
}

/// Who descends from some of these.
fn below(living: &HashMap<Pid, Pid>, ancestors: &HashSet<Pid>) -> Vec<Pid> {
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

/// Everybody who is not dead, and his parent; none if it takes too long to find out.
fn living(deadline: Option<Instant>) -> Option<HashMap<Pid, Pid>> {
    let mut living = HashMap::new();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            return None;
        }
        let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = parent_of(&String::from_utf8_lossy(&stat)).and_then(Pid::from_raw);
        living.extend(Pid::from_raw(pid).zip(parent));
    }
    Some(living)
}

/// The parent by the text of `/proc/…/stat`; none for the dead, who only wait to be collected. The name of a program stands
/// in parentheses and may hold anything.
fn parent_of(stat: &str) -> Option<i32> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_ascii_whitespace();
    let state = words.next()?;
    let parent = words.next()?.parse().ok()?;
    (state != "Z" && state != "X").then_some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_read_past_odd_names() {
        assert_eq!(parent_of("12 (a) Z 7) S 34 12 12"), Some(34));
        assert_eq!(parent_of("12 (sleep) Z 34 12 12"), None);
        assert_eq!(parent_of("12"), None);
    }
}
