//! What an instance gets for itself: a network, an address, ids, CPUs, GPUs. Each is given to one at a time, by the records.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::local_host::LocalHost;
use super::protections::Protection;
use super::record::{Container, Record};
use super::{cpus, gpus, ids};
use crate::{Error, InstanceSpec};

/// Writes an instance into the records in memory: a new one with what is free, or one that exists as it shall be now.
pub(super) fn claim(
    host: &LocalHost,
    spec: &InstanceSpec,
    (image, container): (PathBuf, Option<Container>),
) -> Result<Record, Error> {
    let available =
        cpus::available().map_err(|error| super::local_host::failed("the CPUs could not be counted", &error))?;
    let mut records = host.records();
    gpus::check(&records, &host.gpus.last(), spec)?;
    let others = records.values().filter(|other| other.id != spec.id);
    let loads = others.map(|other| (other.cpus.as_slice(), other.cpu_milli));
    let cpus = cpus::choose(&available, spec.shape.cpu_milli, loads);
    let record = match records.get(&spec.id) {
        Some(known) => {
            let mut record = known.clone();
            record.take(spec);
            record.cpus = cpus;
            record
        }
        None => {
            let slots = records.values().map(|other| other.slot).collect();
            let peer = records.values().find(|other| other.cluster == spec.cluster).map(|peer| peer.slot);
            let slot = peer.map_or_else(|| host.network.choose_slot(&slots), Ok)?;
            let addresses: BTreeSet<_> = records.values().map(|other| other.address).collect();
            let bases = records.values().map(|other| other.id_base).collect();
            let mut id_base = ids::choose(&host.places.installation, &bases)
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
                image,
                container,
                had_disk: false,
                process: None,
            }
        }
    };
    records.insert(record.id.clone(), record.clone());
    Ok(record)
}
