//! The processes of an instance that use a volume: who works in it, runs from it, has a file of it open or in memory, or
//! listens there.

mod kernel;
mod search;
mod sockets;
mod tasks;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Once;
use std::time::Duration;

use rustix::process::Signal;

use crate::local::host::cgroups;
use crate::local::host::mount_tables;
use crate::local::host::processes::{Process, pid_in_namespace};
use crate::local::local_host::blocking;
use crate::{Error, Holder};
use search::{Search, is_in_cgroup, program_name};
use sockets::BoundSockets;
use tasks::Task;

/// How long to wait before looking again.
const PAUSE: Duration = Duration::from_millis(20);

/// How long those that were killed may take to be gone.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// As many threads and open files are looked at, of all processes together.
const MAX_INSPECTED: usize = 1 << 20;

/// As many of those that were killed are remembered.
const MAX_KILLED: usize = 256;

const FAILED: &str = "the processes that use a volume could not be looked at";

/// A volume in an instance.
#[derive(Clone, Debug)]
pub(super) struct VolumeUse {
    /// The control group of the instance.
    pub(super) cgroup: PathBuf,
    /// The first process of the instance, which is never counted: it is the guest.
    pub(super) init: Process,
    /// The number of the volume's device.
    pub(super) device: u64,
}

/// A holder, as the machine knows it.
struct FoundUser {
    task: Task,
    holder: Holder,
}

/// The processes that use it now.
pub(super) async fn find_users(volume_use: VolumeUse) -> Result<Vec<Holder>, Error> {
    let found = blocking(FAILED, move || scan_users(&volume_use)).await?;
    Ok(found.into_iter().map(|found| found.holder).collect())
}

/// Asks the processes to end, kills those that still use the volume when the grace is over, and returns the killed ones.
pub(super) async fn end_users(volume_use: VolumeUse, grace: Duration) -> Result<Vec<Holder>, Error> {
    let mut asked = BTreeSet::new();
    let gone = async {
        loop {
            let found = scan_in_background(&volume_use).await?;
            if found.is_empty() {
                return Ok(());
            }
            let thread = |found: &FoundUser| (found.task.thread.pid, found.task.thread.started);
            for found in found.iter().filter(|found| asked.insert(thread(found))) {
                // A shell does not listen to the first, and whoever is stopped listens to nothing before the last.
                found.task.signal(&[Signal::TERM, Signal::HUP, Signal::CONT]);
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    match tokio::time::timeout(grace, gone).await {
        Ok(done) => done.map(|()| Vec::new()),
        Err(_) => kill_users(&volume_use).await,
    }
}

/// Kills them until there are none, or until it is clear that others follow faster. Even then those that were killed are
/// named, and what comes next does without: a restart ends everybody, and an unmount says that the volume is in use.
async fn kill_users(volume_use: &VolumeUse) -> Result<Vec<Holder>, Error> {
    let mut killed: Vec<Holder> = Vec::new();
    let gone = async {
        loop {
            let found = scan_in_background(volume_use).await?;
            if found.is_empty() {
                return Ok(());
            }
            for found in found {
                found.task.signal(&[Signal::KILL]);
                if killed.len() < MAX_KILLED && !killed.contains(&found.holder) {
                    killed.push(found.holder);
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    match tokio::time::timeout(KILL_TIMEOUT, gone).await {
        Ok(Err(error)) if killed.is_empty() => return Err(error),
        Ok(Err(error)) => tracing::warn!(%error, killed = killed.len(), "not all that use a volume could be killed"),
        Err(_) => tracing::warn!(killed = killed.len(), "processes that use a volume do not end, or others follow"),
        Ok(Ok(())) => {}
    }
    Ok(killed)
}

async fn scan_in_background(volume_use: &VolumeUse) -> Result<Vec<FoundUser>, Error> {
    let volume_use = volume_use.clone();
    blocking(FAILED, move || scan_users(&volume_use)).await
}

fn scan_users(volume_use: &VolumeUse) -> io::Result<Vec<FoundUser>> {
    let mut holders = Vec::new();
    let mut search = Search {
        device: volume_use.device,
        sockets: bound_sockets(volume_use),
        namespace: fs::read_link(format!("/proc/{}/ns/mnt", volume_use.init.pid)).ok(),
        budget: MAX_INSPECTED,
    };
    for pid in cgroups::processes_in(&volume_use.cgroup)? {
        let Ok(pid) = u32::try_from(pid) else { continue };
        if pid == volume_use.init.pid {
            continue;
        }
        // Whoever ends meanwhile, or never was in the instance but has the number of one that was, is none.
        let Some(task) = Task::find(pid)? else { continue };
        if search.is_used_by(&task)
            && is_in_cgroup(&task.directory(task.thread.pid), &volume_use.cgroup)
            && task.alive()?
        {
            let process = PathBuf::from(format!("/proc/{pid}"));
            let holder = Holder { pid: pid_in_namespace(&process).unwrap_or(pid), program: program_name(&process) };
            holders.push(FoundUser { task, holder });
        }
    }
    // Whatever was seen in a group whose first process is another one by now belongs to another start.
    if !volume_use.init.alive()? {
        holders.clear();
    }
    Ok(holders)
}

/// The sockets that are bound on the volume. A kernel that does not tell them is no reason not to look at all else.
fn bound_sockets(volume_use: &VolumeUse) -> BoundSockets {
    static LOGGED: Once = Once::new();
    let found = BoundSockets::in_namespace_of(volume_use.init.pid, volume_use.device);
    found.unwrap_or_else(|error| {
        if !mount_tables::is_process_gone(&error) {
            LOGGED.call_once(|| tracing::warn!(%error, "sockets on volumes are not seen"));
        }
        BoundSockets::default()
    })
}
