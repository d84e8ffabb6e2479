//! Control groups that libcontainer has created: limiting CPU time, listing and killing processes, counting memory
//! kills, and removal.
//!
//! Version 1 has a hierarchy for each controller, version 2 one for all. A path means the group of that name in every
//! hierarchy.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::local::host::files;
use crate::local::host::processes::pid_in_namespace;

const ROOT: &str = "/sys/fs/cgroup";

/// How long the processes of a group may take to end.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The delay between two attempts.
const PAUSE: Duration = Duration::from_millis(1);

/// The period over which CPU time is limited.
const PERIOD_US: u64 = 100_000;

/// The smallest quota that the kernel accepts.
const LEAST_QUOTA_US: u64 = 1_000;

/// Limits the group to so many thousandths of a CPU. This is done after its first process has started: with a small
/// quota the start itself would take ten times as long.
pub(in crate::local) fn limit_cpu_time(path: &Path, cpu_milli: u64) -> io::Result<()> {
    let quota = (cpu_milli * PERIOD_US / 1_000).max(LEAST_QUOTA_US);
    let mut is_limited = false;
    for group in existing_directories(path)? {
        if group.join("cpu.max").exists() {
            fs::write(group.join("cpu.max"), format!("{quota} {PERIOD_US}"))?;
            is_limited = true;
        }
        if group.join("cpu.cfs_quota_us").exists() {
            fs::write(group.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
            fs::write(group.join("cpu.cfs_quota_us"), quota.to_string())?;
            is_limited = true;
        }
    }
    if is_limited { Ok(()) } else { Err(io::Error::other("this kernel cannot limit CPU time")) }
}

/// Kills every process in a group and returns when all are gone.
pub(in crate::local) async fn kill_all_processes(path: &Path) -> io::Result<()> {
    let all_gone = async {
        loop {
            let processes = processes_in(path)?;
            if processes.is_empty() {
                return Ok(());
            }
            // The guest is killed first, and the others end with it. It can then not report them as processes that
            // ended on their own.
            let (init, others): (Vec<_>, Vec<_>) = processes.into_iter().partition(|pid| is_init_process(*pid));
            for pid in init.into_iter().chain(others).filter_map(Pid::from_raw) {
                // It may be gone already.
                let _sent = kill_process(pid, Signal::KILL);
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(TIMEOUT, all_gone).await.map_err(|_| io::Error::other("a process does not end"))?
}

/// Returns whether a process is the first process of an instance.
fn is_init_process(pid: i32) -> bool {
    pid_in_namespace(Path::new(&format!("/proc/{pid}"))) == Some(1)
}

/// Removes a group without processes, and returns when it is gone.
pub(in crate::local) async fn remove_cgroup(path: &Path) -> io::Result<()> {
    for group in existing_directories(path)? {
        let gone = async {
            loop {
                match files::ignore_missing(fs::remove_dir(&group)) {
                    // The kernel needs a moment after the last process has ended.
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => tokio::time::sleep(PAUSE).await,
                    other => return other,
                }
            }
        };
        tokio::time::timeout(TIMEOUT, gone).await.map_err(|_| io::Error::other("a control group stays busy"))??;
    }
    Ok(())
}

/// How many processes of the group the kernel killed because the group was out of memory.
pub(in crate::local) fn count_memory_kills(path: &Path) -> io::Result<u64> {
    let mut kills = 0;
    for group in existing_directories(path)? {
        for file in ["memory.events", "memory.oom_control"] {
            let text = fs::read_to_string(group.join(file)).unwrap_or_default();
            let counts = text.lines().filter_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok());
            kills += counts.sum::<u64>();
        }
    }
    Ok(kills)
}

/// The names of the child groups of a group.
pub(in crate::local) fn child_names(path: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for group in existing_directories(path)? {
        for entry in fs::read_dir(group)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                names.insert(entry.file_name().to_string_lossy().into_owned());
            }
        }
    }
    Ok(names)
}

/// The processes in a group.
pub(in crate::local) fn processes_in(path: &Path) -> io::Result<BTreeSet<i32>> {
    let mut processes = BTreeSet::new();
    for group in existing_directories(path)? {
        let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        processes.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    }
    Ok(processes)
}

/// The existing directories of a group, one for each hierarchy.
fn existing_directories(path: &Path) -> io::Result<Vec<PathBuf>> {
    let path = path.strip_prefix("/").map_err(io::Error::other)?;
    let root = Path::new(ROOT);
    let mut groups = vec![root.join(path)];
    if !root.join("cgroup.controllers").exists() {
        for entry in fs::read_dir(root)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                groups.push(entry.path().join(path));
            }
        }
    }
    groups.retain(|group| group.is_dir());
    Ok(groups)
}
