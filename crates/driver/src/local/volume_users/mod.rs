//! The processes of an instance that use a volume: as working directory, as program, through open or mapped files, or
//! through bound sockets.
//!
//! Start reading at [`find_users`]; `search` decides for one process, and `sockets` asks the kernel for bound sockets.

mod kernel;
mod search;
mod sockets;

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
use crate::{Error, VolumeUser};
use search::Task;
use search::{Search, is_in_cgroup, program_name};
use sockets::BoundSockets;

/// The delay between two scans.
const PAUSE: Duration = Duration::from_millis(20);

/// How long killed processes may take to be gone.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// How many threads and open files are inspected, of all processes together.
const MAX_INSPECTED: usize = 1 << 20;

/// How many killed processes are reported.
const MAX_KILLED: usize = 256;

const FAILED: &str = "the processes that use the volume could not be listed";

/// A volume in an instance.
#[derive(Clone, Debug)]
pub(super) struct InstanceVolume {
    /// The control group of the instance.
    pub(super) cgroup: PathBuf,
    /// The first process of the instance, which is never counted: it is the guest.
    pub(super) init: Process,
    /// The number of the volume's device.
    pub(super) device: u64,
}

/// A process that uses the volume, with its identity on the host.
struct FoundUser {
    task: Task,
    holder: VolumeUser,
}

/// Returns the processes that use the volume now.
pub(super) async fn find_users(volume: InstanceVolume) -> Result<Vec<VolumeUser>, Error> {
    let found = blocking(FAILED, move || scan_users(&volume)).await?;
    Ok(found.into_iter().map(|found| found.holder).collect())
}

/// Asks the processes to end, kills those that still use the volume after the grace period, and returns the killed
/// ones.
pub(super) async fn end_users(volume: InstanceVolume, grace: Duration) -> Result<Vec<VolumeUser>, Error> {
    let mut asked = BTreeSet::new();
    let gone = async {
        loop {
            let found = scan_users_in_background(&volume).await?;
            if found.is_empty() {
                return Ok(());
            }
            let thread = |found: &FoundUser| (found.task.thread.pid, found.task.thread.started);
            for found in found.iter().filter(|found| asked.insert(thread(found))) {
                // An interactive shell ignores SIGTERM, and a stopped process handles no signal before SIGCONT.
                found.task.signal(&[Signal::TERM, Signal::HUP, Signal::CONT]);
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    match tokio::time::timeout(grace, gone).await {
        Ok(done) => done.map(|()| Vec::new()),
        Err(_) => kill_users(&volume).await,
    }
}

/// Kills users until there are none, or until the timeout because new ones appear faster. Even then the killed
/// processes are returned and the caller continues: a restart ends every process, and an unmount reports that the
/// volume is in use.
async fn kill_users(volume: &InstanceVolume) -> Result<Vec<VolumeUser>, Error> {
    let mut killed: Vec<VolumeUser> = Vec::new();
    let gone = async {
        loop {
            let found = scan_users_in_background(volume).await?;
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
        Ok(Err(error)) => {
            tracing::warn!(%error, killed = killed.len(), "not all processes that use a volume could be killed");
        }
        Err(_) => tracing::warn!(killed = killed.len(), "processes that use a volume do not end, or new ones appear"),
        Ok(Ok(())) => {}
    }
    Ok(killed)
}

async fn scan_users_in_background(volume: &InstanceVolume) -> Result<Vec<FoundUser>, Error> {
    let volume = volume.clone();
    blocking(FAILED, move || scan_users(&volume)).await
}

fn scan_users(volume: &InstanceVolume) -> io::Result<Vec<FoundUser>> {
    let mut volume_users = Vec::new();
    let mut search = Search {
        device: volume.device,
        sockets: bound_sockets(volume),
        namespace: fs::read_link(format!("/proc/{}/ns/mnt", volume.init.pid)).ok(),
        budget: MAX_INSPECTED,
    };
    for pid in cgroups::processes_in(&volume.cgroup)? {
        let Ok(pid) = u32::try_from(pid) else { continue };
        if pid == volume.init.pid {
            continue;
        }
        // A process that ends meanwhile, or that only has the reused pid of a process of the instance, is not counted.
        let Some(task) = Task::find(pid)? else { continue };
        if search.is_used_by(&task) && is_in_cgroup(&task.directory(task.thread.pid), &volume.cgroup) && task.alive()? {
            let process = PathBuf::from(format!("/proc/{pid}"));
            let holder = VolumeUser { pid: pid_in_namespace(&process).unwrap_or(pid), program: program_name(&process) };
            volume_users.push(FoundUser { task, holder });
        }
    }
    // If the first process has changed, everything that was seen belongs to another start.
    if !volume.init.alive()? {
        volume_users.clear();
    }
    Ok(volume_users)
}

/// The sockets that are bound on the volume. A kernel that does not report them does not prevent the rest of the
/// search.
fn bound_sockets(volume: &InstanceVolume) -> BoundSockets {
    static LOGGED: Once = Once::new();
    let found = BoundSockets::in_namespace_of(volume.init.pid, volume.device);
    found.unwrap_or_else(|error| {
        if !mount_tables::is_process_gone(&error) {
            LOGGED.call_once(|| tracing::warn!(%error, "sockets on volumes cannot be listed"));
        }
        BoundSockets::default()
    })
}
