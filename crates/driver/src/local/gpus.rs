//! The GPUs of this machine: who owns which, and what an instance needs to use one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io};

use rustix::io::Errno;
use tarn_model::capacity::Gpu;
use tarn_model::gpus::{Fault, Look, Seen};

use super::local_host::{LocalHost, Records, blocking};
use crate::gpus::cdi::{Directories, Edits, Unusable};
use crate::gpus::{LOOK_TIMEOUT, Watch};
use crate::{Error, InstanceSpec};

/// What is known about GPUs.
pub(super) struct Gpus {
    watch: Arc<Watch>,
    cdi: Directories,
    /// Why GPUs cannot be given to anybody, as it was logged last.
    complaints: Arc<Mutex<BTreeMap<String, Unusable>>>,
}

impl Gpus {
    pub(super) fn new(watch: Arc<Watch>, cdi: Directories) -> Self {
        Gpus { watch, cdi, complaints: Arc::default() }
    }

    /// Those that were there at the last look.
    pub(super) fn last(&self) -> Vec<Gpu> {
        self.watch.last()
    }
}

/// Looks at all of them. A process belongs to the owner of a GPU if it is in the control group of that instance.
pub(super) async fn look(host: &LocalHost) -> Result<Look, Error> {
    let (records, places) = (host.shared_records(), host.places.clone());
    // Who owns one is asked when its processes are known: whoever has come to use it in between has a record by then.
    let is_owners = move |gpu: &str, pid: u32| {
        let records = records.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = records.values().find(|record| record.gpus.iter().any(|owned| owned == gpu));
        is_of(pid, owner.map(|record| places.cgroup(&record.id)).as_deref())
    };
    let mut look = host.gpus.watch.look_within(LOOK_TIMEOUT, is_owners).await?;
    if look.seen.iter().any(|seen| !seen.gpu.simulated) {
        let (watch, cdi) = (host.gpus.watch.clone(), host.gpus.cdi.clone());
        let complaints = host.gpus.complaints.clone();
        look = blocking("the CDI specifications could not be read", move || {
            examine(&watch, &cdi, &complaints, &mut look.seen);
            Ok(look)
        })
        .await?;
    }
    Ok(look)
}

/// A real GPU that nobody could use is not to be offered.
fn examine(watch: &Watch, cdi: &Directories, told: &Mutex<BTreeMap<String, Unusable>>, seen: &mut [Seen]) {
    let real: Vec<&mut Seen> = seen.iter_mut().filter(|seen| !seen.gpu.simulated).collect();
    let names: Vec<Vec<String>> = real.iter().map(|seen| watch.names(&seen.gpu.id)).collect();
    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
    let mut complaints = BTreeMap::new();
    for (seen, why) in real.into_iter().zip(cdi.check(&names)) {
        let Some(why) = why else { continue };
        if told.get(&seen.gpu.id) != Some(&why) {
            tracing::warn!(gpu = seen.gpu.id, %why, "a GPU cannot be given to instances");
        }
        seen.faults.push(match &why {
            Unusable::Unnamed(_) => Fault::Undescribed,
            Unusable::Wrong(_) | Unusable::Absent(_) => Fault::Unusable,
        });
        complaints.insert(seen.gpu.id.clone(), why);
    }
    *told = complaints;
}

/// Checks that an instance can have its GPUs: they are there, and nobody else has them.
pub(super) fn check(records: &Records, known: &[Gpu], spec: &InstanceSpec) -> Result<(), Error> {
    for gpu in &spec.gpus {
        if !known.iter().any(|known| known.id == *gpu) {
            // After a start of the machine it may come later than the engine.
            return Err(Error::Retry(format!("GPU {gpu} does not answer, or is not there any more; ask the operator")));
        }
        if records.values().any(|other| other.id != spec.id && other.gpus.contains(gpu)) {
            return Err(Error::Permanent(format!("GPU {gpu} belongs to another instance")));
        }
    }
    Ok(())
}

/// What an instance needs that gets these GPUs. A simulated one needs nothing, but gets what a specification says of it.
pub(super) async fn edits(host: &LocalHost, gpus: &[String]) -> Result<Edits, Error> {
    if gpus.is_empty() {
        return Ok(Edits::default());
    }
    let (watch, cdi) = (host.gpus.watch.clone(), host.gpus.cdi.clone());
    let known = watch.last();
    let names: Vec<Vec<String>> = gpus.iter().map(|gpu| watch.names(gpu)).collect();
    let is_real = move |id: &String| known.iter().any(|gpu| gpu.id == *id && !gpu.simulated);
    let resolved = blocking("the CDI specifications could not be read", move || {
        Ok(cdi.resolve(&names).and_then(|(edits, unnamed)| {
            let unnamed = unnamed.into_iter().find(is_real).map(Unusable::Unnamed);
            unnamed.or_else(|| edits.absent()).map_or(Ok(edits), Err)
        }))
    });
    resolved.await?.map_err(|why| {
        tracing::warn!(%why, "the GPUs of an instance cannot be given to it");
        match why {
            Unusable::Wrong(_) => Error::Permanent(
                "its GPUs cannot be passed to an instance as they are described on this machine; ask the operator"
                    .into(),
            ),
            Unusable::Unnamed(id) => {
                Error::Retry(format!("nothing on this machine says how to use GPU {id}; ask the operator"))
            }
            Unusable::Absent(_) => {
                Error::Retry("something that its GPUs need is not there on this machine; ask the operator".into())
            }
        }
    })
}

/// Whether a process is in this control group, in whatever hierarchy. One that has ended in the meantime uses nothing any more.
fn is_of(pid: u32, group: Option<&Path>) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/cgroup")) {
        Ok(groups) => group.is_some_and(|group| {
            let mut paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
            paths.any(|path| PathBuf::from(path).starts_with(group))
        }),
        // The file may be opened by then, and the process go before it is read.
        Err(error) => {
            error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
        }
    }
}
