//! The GPUs of this host: which instance owns which, and what an instance needs to use one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use parking_lot::Mutex;
use rustix::io::Errno;
use tarn_model::capacity::Gpu;
use tarn_model::gpus::{Fault, GpuObservation, ObservedGpu};

use crate::gpus::cdi::{Directories, Edits, Unusable};
use crate::gpus::{LOOK_TIMEOUT, Watch};
use crate::local::local_host::{LocalHost, Records, blocking};
use crate::{Error, InstanceSpec};

/// The state of the GPUs.
pub(super) struct Gpus {
    watch: Arc<Watch>,
    cdi: Directories,
    /// Why GPUs cannot be given to instances, as last logged.
    logged_problems: Arc<Mutex<BTreeMap<String, Unusable>>>,
}

impl Gpus {
    pub(super) fn new(watch: Arc<Watch>, cdi: Directories) -> Self {
        Gpus { watch, cdi, logged_problems: Arc::default() }
    }

    /// The GPUs that were present at the last observation.
    pub(super) fn last(&self) -> Vec<Gpu> {
        self.watch.last()
    }
}

/// Observes all GPUs. A process belongs to the owner of a GPU if it is in the control group of that instance.
pub(super) async fn observe_gpus(host: &LocalHost) -> Result<GpuObservation, Error> {
    let (records, paths) = (host.records.clone(), host.paths.clone());
    // The owner is looked up after the processes are known: an instance that started to use a GPU in between has a
    // record by then.
    let is_process_of_owner = move |gpu: &str, pid: u32| {
        let records = records.lock();
        let owner = records.values().find(|record| record.gpus.iter().any(|owned| owned == gpu));
        is_in_owner_cgroup(pid, owner.map(|record| paths.instance_cgroup(&record.id)).as_deref())
    };
    let mut look = host.gpus.watch.look_within(LOOK_TIMEOUT, is_process_of_owner).await?;
    if look.seen.iter().any(|seen| !seen.gpu.simulated) {
        let (watch, cdi) = (host.gpus.watch.clone(), host.gpus.cdi.clone());
        let logged_problems = host.gpus.logged_problems.clone();
        look = blocking("the CDI specifications could not be read", move || {
            flag_unusable_gpus(&watch, &cdi, &logged_problems, &mut look.seen);
            Ok(look)
        })
        .await?;
    }
    Ok(look)
}

/// Adds a fault to every real GPU that no instance could use, so that it is not offered.
fn flag_unusable_gpus(
    watch: &Watch,
    cdi: &Directories,
    logged: &Mutex<BTreeMap<String, Unusable>>,
    seen: &mut [ObservedGpu],
) {
    let real: Vec<&mut ObservedGpu> = seen.iter_mut().filter(|seen| !seen.gpu.simulated).collect();
    let names: Vec<Vec<String>> = real.iter().map(|seen| watch.names(&seen.gpu.id)).collect();
    let mut logged = logged.lock();
    let mut problems = BTreeMap::new();
    for (seen, why) in real.into_iter().zip(cdi.check(&names)) {
        let Some(why) = why else { continue };
        if logged.get(&seen.gpu.id) != Some(&why) {
            tracing::warn!(gpu = seen.gpu.id, %why, "a GPU cannot be given to instances");
        }
        seen.faults.push(match &why {
            Unusable::Unnamed(_) => Fault::Undescribed,
            Unusable::Wrong(_) | Unusable::Absent(_) => Fault::Unusable,
        });
        problems.insert(seen.gpu.id.clone(), why);
    }
    *logged = problems;
}

/// Checks that the GPUs of an instance are present and that no other instance has them.
pub(super) fn check_gpu_claims(records: &Records, known: &[Gpu], spec: &InstanceSpec) -> Result<(), Error> {
    for gpu in &spec.gpus {
        if !known.iter().any(|known| known.id == *gpu) {
            // After a boot of the host, a GPU may appear later than the engine.
            return Err(Error::Retry(format!("GPU {gpu} does not respond or is missing; ask the operator")));
        }
        if records.values().any(|other| other.id != spec.id && other.gpus.contains(gpu)) {
            return Err(Error::Permanent(format!("GPU {gpu} belongs to another instance")));
        }
    }
    Ok(())
}

/// Resolves what an instance with these GPUs needs. A simulated GPU needs nothing, but gets what a specification says
/// of it.
pub(super) async fn resolve_device_edits(host: &LocalHost, gpus: &[String]) -> Result<Edits, Error> {
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
                "the CDI specification of its GPUs on this host cannot be used; ask the operator".into(),
            ),
            Unusable::Unnamed(id) => {
                Error::Retry(format!("no CDI specification on this host describes GPU {id}; ask the operator"))
            }
            Unusable::Absent(_) => {
                Error::Retry("something that its GPUs need is missing on this host; ask the operator".into())
            }
        }
    })
}

/// Returns whether a process is in this control group, in any hierarchy. A process that has ended meanwhile uses no GPU
/// and counts as inside.
fn is_in_owner_cgroup(pid: u32, group: Option<&Path>) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/cgroup")) {
        Ok(groups) => group.is_some_and(|group| {
            let mut paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
            paths.any(|path| PathBuf::from(path).starts_with(group))
        }),
        // The process may also end between the opening and the reading of the file.
        Err(error) => {
            error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
        }
    }
}
