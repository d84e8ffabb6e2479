//! The processes of an instance that use a volume: who works in it, runs from it, has a file of it open or in memory.

mod uses;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::cgroups;
use super::engine::blocking;
use super::processes::Process;
use crate::{Error, Holder};
use uses::{is_in, number_inside, program, uses};

/// How long to wait before looking again.
const PAUSE: Duration = Duration::from_millis(20);

/// How long those that were killed may take to be gone.
const LAST_WAIT: Duration = Duration::from_secs(10);

/// As many open files are looked at, of all processes together.
const MAX_FILES: usize = 1 << 20;

const FAILED: &str = "the processes that use a volume could not be looked at";

/// A volume in an instance.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The control group of the instance.
    pub(super) group: PathBuf,
    /// The first process of the instance, which is never counted: it is the guest.
    pub(super) first: Process,
    /// The number of the volume's device.
    pub(super) device: u64,
}

/// A holder, as the machine knows it.
struct Found {
    process: Process,
    holder: Holder,
}

/// The processes that use it now.
pub(super) async fn find(place: Place) -> Result<Vec<Holder>, Error> {
    let found = blocking(FAILED, move || look(&place)).await?;
    Ok(found.into_iter().map(|found| found.holder).collect())
}

/// Asks the processes to end, kills those that still use the volume when the grace is over, and returns the killed ones.
pub(super) async fn end(place: Place, grace: Duration) -> Result<Vec<Holder>, Error> {
    let mut asked = BTreeSet::new();
    let gone = async {
        loop {
            let found = seek(&place).await?;
            if found.is_empty() {
                return Ok(());
            }
            for found in found.iter().filter(|found| asked.insert((found.process.pid, found.process.started))) {
                // A shell does not listen to the first, and whoever is stopped listens to nothing before the last.
                signal(&found.process, &[Signal::TERM, Signal::HUP, Signal::CONT]);
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    match tokio::time::timeout(grace, gone).await {
        Ok(done) => done.map(|()| Vec::new()),
        Err(_) => kill(&place).await,
    }
}

async fn kill(place: &Place) -> Result<Vec<Holder>, Error> {
    let mut killed: Vec<Holder> = Vec::new();
    let gone = async {
        loop {
            let found = seek(place).await?;
            if found.is_empty() {
                return Ok(());
            }
            for found in found {
                signal(&found.process, &[Signal::KILL]);
                if !killed.iter().any(|known| known.pid == found.holder.pid) {
                    killed.push(found.holder);
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    let done = tokio::time::timeout(LAST_WAIT, gone).await;
    done.unwrap_or_else(|_| Err(Error::Retry("processes that use the volume do not end".into())))?;
    Ok(killed)
}

async fn seek(place: &Place) -> Result<Vec<Found>, Error> {
    let place = place.clone();
    blocking(FAILED, move || look(&place)).await
}

/// Signals this process and no other: a number may have been given to another one by now, a descriptor is not.
fn signal(process: &Process, signals: &[Signal]) {
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else { return };
    let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if process.alive().unwrap_or(false) {
        for signal in signals {
            // It may be gone already.
            let _sent = pidfd_send_signal(&descriptor, *signal);
        }
    }
}

fn look(place: &Place) -> io::Result<Vec<Found>> {
    let mut left = MAX_FILES;
    let mut holders = Vec::new();
    let own = fs::read_link(format!("/proc/{}/ns/mnt", place.first.pid)).ok();
    for pid in cgroups::processes(&place.group)? {
        let Ok(pid) = u32::try_from(pid) else { continue };
        if pid == place.first.pid {
            continue;
        }
        // Whoever ends meanwhile, or never was in the instance but has the number of one that was, is none.
        let Some(process) = Process::find(pid)? else { continue };
        let directory = PathBuf::from(format!("/proc/{pid}"));
        if uses(&directory, place.device, own.as_deref(), &mut left)
            && is_in(&directory, &place.group)
            && process.alive()?
        {
            let holder = Holder { pid: number_inside(&directory).unwrap_or(pid), program: program(&directory) };
            holders.push(Found { process, holder });
        }
    }
    // Whatever was seen in a group whose first process is another one by now belongs to another start.
    if !place.first.alive()? {
        holders.clear();
    }
    Ok(holders)
}
