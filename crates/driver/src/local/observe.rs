//! What the driver says about instances: what is on record, whether its process lives, and what is mounted there.

use std::collections::BTreeSet;
use std::io;

use tarn_model::ids::{InstanceId, VolumeId};

use super::local_host::{LocalHost, failed};
use super::mount_tables::{self, Mount};
use super::places::Places;
use super::record::Record;
use super::{cgroups, disks, last_word};
use crate::{End, Error, Observed, ObservedInstance};

/// Looks at one instance.
pub(super) fn one(host: &LocalHost, id: &InstanceId) -> Result<Option<ObservedInstance>, Error> {
    host.record(id).map(|record| look(host, &record)).transpose()
}

/// Looks at all of them.
pub(super) fn all(host: &LocalHost) -> Result<Observed, Error> {
    let records: Vec<Record> = host.records().values().cloned().collect();
    let mut observed = Observed::default();
    for record in records {
        let seen = look(host, &record)?;
        observed.instances.insert(record.id, seen);
    }
    Ok(observed)
}

/// Looks at what is on record.
pub(super) fn look(host: &LocalHost, record: &Record) -> Result<ObservedInstance, Error> {
    see(&host.places, record)
}

/// The same for who has no engine, only its places.
pub(super) fn see(places: &Places, record: &Record) -> Result<ObservedInstance, Error> {
    let what = "an instance could not be looked at";
    let volumes = mounted(record).map_err(|error| failed(what, &error))?;
    let end = if volumes.is_some() { None } else { end(places, record).map_err(|error| failed(what, &error))? };
    Ok(ObservedInstance {
        cluster: record.cluster.clone(),
        running: volumes.is_some(),
        boot: record.boot,
        private_ip: record.address.to_string(),
        volumes: volumes.unwrap_or_default().into_iter().collect(),
        end,
    })
}

/// The volumes that are mounted in an instance; `None` when it does not run.
fn mounted(record: &Record) -> io::Result<Option<BTreeSet<VolumeId>>> {
    let Some(process) = &record.process else { return Ok(None) };
    let table = mount_tables::of(process)?;
    Ok(table.map(|table| table.iter().filter_map(Mount::volume).collect()))
}

/// Whether its first process lives.
pub(super) fn alive(record: &Record) -> io::Result<bool> {
    record.process.as_ref().map_or(Ok(false), |process| process.alive())
}

/// Why it does not run; `None` when it never began.
fn end(places: &Places, record: &Record) -> io::Result<Option<End>> {
    let Some(process) = &record.process else { return Ok(None) };
    if !process.of_this_boot()? {
        let is_whole = disks::is_there(places, &record.id)?;
        return Ok(Some(if is_whole { End::MachineRebooted } else { End::DiskMissing }));
    }
    // An orderly end comes first: the kernel may have ended some other process of the instance long before.
    if last_word::was_said(&places.run_of(&record.id)) {
        return Ok(Some(End::Exit));
    }
    let out_of_memory = cgroups::memory_kills(&places.cgroup(&record.id))? > 0;
    Ok(Some(if out_of_memory { End::OutOfMemory } else { End::Lost }))
}
