//! The GPUs of this machine: who owns which, and what an instance needs to use one.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tarn_model::gpus::Seen;

use super::engine::{Engine, blocking};
use crate::Error;
use crate::gpus::Watch;
use crate::gpus::cdi::{Directories, Edits};

/// How long a look may take; it needs a tenth of a second.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is known about GPUs.
pub(super) struct Gpus {
    pub(super) watch: Arc<Watch>,
    pub(super) cdi: Directories,
}

/// Looks at all of them. A process belongs to the owner of a GPU if it is in the control group of that instance.
pub(super) async fn look(engine: &Engine) -> Result<Vec<Seen>, Error> {
    let owners: BTreeMap<String, PathBuf> = {
        let records = engine.records();
        let owned = records.values().flat_map(|record| record.gpus.iter().map(|gpu| (gpu.clone(), &record.id)));
        owned.map(|(gpu, id)| (gpu, engine.places.cgroup(id))).collect()
    };
    let watch = engine.gpus.watch.clone();
    let is_owners = move |gpu: &str, pid: u32| owners.get(gpu).is_some_and(|group| is_in(pid, group));
    let look = blocking("the GPUs could not be looked at", move || Ok(watch.look(is_owners)));
    // One that keeps everybody waiting is found out by the next look.
    let looked = tokio::time::timeout(PATIENCE, look).await;
    looked.unwrap_or_else(|_| Err(Error::Retry("a GPU does not answer".into())))
}

/// What an instance needs that gets these GPUs. A simulated one needs nothing, but gets what a specification says of it.
pub(super) async fn edits(engine: &Engine, gpus: &[String]) -> Result<Edits, Error> {
    if gpus.is_empty() {
        return Ok(Edits::default());
    }
    let (watch, cdi) = (engine.gpus.watch.clone(), engine.gpus.cdi.clone());
    let names: Vec<Vec<String>> = gpus.iter().map(|gpu| watch.names(gpu)).collect();
    let resolved = blocking("the CDI specifications could not be read", move || Ok(cdi.resolve(&names))).await?;
    let (edits, unnamed) = resolved.map_err(|why| {
        tracing::warn!(%why, "the GPUs of an instance cannot be given to it");
        Error::Permanent(
            "its GPUs cannot be passed to an instance as they are described on this machine; ask the operator".into(),
        )
    })?;
    let known = watch.last();
    let is_real = |id: &String| known.iter().any(|gpu| gpu.id == *id && !gpu.simulated);
    match unnamed.iter().find(|id| is_real(id)) {
        Some(id) => {
            tracing::warn!(
                id,
                "no CDI specification names a GPU: run `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"
            );
            Err(Error::Permanent(format!("nothing on this machine says how to use GPU {id}; ask the operator")))
        }
        None => Ok(edits),
    }
}

/// Whether a process is in a control group, in whatever hierarchy.
fn is_in(pid: u32, group: &std::path::Path) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    groups.lines().filter_map(|line| line.splitn(3, ':').nth(2)).any(|path| PathBuf::from(path).starts_with(group))
}
