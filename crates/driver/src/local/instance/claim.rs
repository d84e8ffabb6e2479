//! The resources that an instance owns alone: a network, an address, ids, CPUs, GPUs. The records say which are taken.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::local::gpus;
use crate::local::host::{cpus, id_ranges};
use crate::local::instance::record::{Container, Record};
use crate::local::local_host::{LocalHost, failed};
use crate::local::protections::Protection;
use crate::{Error, InstanceSpec};

/// What the root filesystem of an instance is based on.
pub(super) struct RootImage {
    /// The image of the host, or the skeleton on top of the layers of a container image.
    pub(super) path: PathBuf,
    pub(super) container: Option<Container>,
}

/// Inserts an instance into the records in memory: a new one with free resources, or an existing one with its new
/// specification.
pub(super) fn claim_resources(host: &LocalHost, spec: &InstanceSpec, root_image: RootImage) -> Result<Record, Error> {
    let available = cpus::available_cpus().map_err(|error| failed("the CPUs could not be counted", &error))?;
    let mut records = host.records();
    gpus::check_gpu_claims(&records, &host.gpus.last(), spec)?;
    let others = records.values().filter(|other| other.id != spec.id);
    let loads = others.map(|other| (other.cpus.as_slice(), other.cpu_milli));
    let cpus = cpus::choose_cpus(&available, spec.shape.cpu_milli, loads);
    let record = match records.get(&spec.id) {
        Some(known) => {
            let mut record = known.clone();
            record.apply_spec(spec);
            record.cpus = cpus;
            record
        }
        None => {
            let slots = records.values().map(|other| other.slot).collect();
            let peer = records.values().find(|other| other.cluster == spec.cluster).map(|peer| peer.slot);
            let slot = peer.map_or_else(|| host.network.choose_slot(&slots), Ok)?;
            let addresses: BTreeSet<_> = records.values().map(|other| other.address).collect();
            let bases = records.values().map(|other| other.id_base).collect();
            let mut id_base = id_ranges::choose_id_range(&host.paths.installation, &bases)
                .ok_or_else(|| Error::Retry("every range of user ids is taken".into()))?;
            if !host.protections.have(Protection::UserNamespace) {
                id_base = 0;
            }
            Record {
                id: spec.id.clone(),
                cluster: spec.cluster.clone(),
                name: spec.name.clone(),
                cpu_milli: spec.shape.cpu_milli,
                memory_bytes: spec.shape.memory_bytes,
                gpus: spec.gpus.clone(),
                boot: spec.boot,
                slot,
                address: host.network.address(slot, &addresses)?,
                id_base,
                cpus,
                image: root_image.path,
                container: root_image.container,
                had_disk: false,
                process: None,
            }
        }
    };
    records.insert(record.id.clone(), record.clone());
    Ok(record)
}
