//! The record of an instance on disk: enough to find everything again that was ever created for it.
//!
//! A record is written before anything is created, and is removed last.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tarn_model::ids::{ClusterId, InstanceId};

use crate::local::gpus;
use crate::local::host::processes::Process;
use crate::local::host::{cpus, files, id_ranges};
use crate::local::local_host::{LocalHost, failed};
use crate::local::protections::Protection;
use crate::{Error, InstanceSpec};

/// The name of the file in the instance's directory.
const FILE: &str = "instance.json";

/// The longest record.
const MAX_LENGTH: u64 = 1 << 20;

/// An instance on record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::local) struct Record {
    pub(in crate::local) id: InstanceId,
    pub(in crate::local) cluster: ClusterId,
    pub(in crate::local) name: String,
    pub(in crate::local) cpu_milli: u64,
    pub(in crate::local) memory_bytes: u64,
    pub(in crate::local) gpus: Vec<String>,
    pub(in crate::local) boot: u32,
    /// The network of its cluster.
    pub(in crate::local) slot: u16,
    pub(in crate::local) address: Ipv4Addr,
    /// The first of its user and group ids.
    pub(in crate::local) id_base: u32,
    pub(in crate::local) cpus: Vec<u32>,
    /// The image of its root filesystem. It never changes, because the disk holds only what differs from it.
    pub(in crate::local) image: PathBuf,
    /// Whether it ever had a disk; older records do not say.
    #[serde(default)]
    pub(in crate::local) had_disk: bool,
    /// The container image of its root filesystem, which never changes either; none for the host image.
    #[serde(default)]
    pub(in crate::local) container: Option<Container>,
    /// The first process of its current start; `None` until there is one.
    pub(in crate::local) process: Option<Process>,
}

/// The container image of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::local) struct Container {
    /// The name with its digest.
    pub(in crate::local) name: String,
    /// The digests of the layers, lowest first.
    pub(in crate::local) layers: Vec<String>,
    /// How the image runs its programs.
    pub(in crate::local) image: tarn_link::Image,
}

impl Record {
    /// Applies what may change from start to start.
    pub(in crate::local) fn apply_spec(&mut self, spec: &InstanceSpec) {
        self.boot = spec.boot;
        self.name.clone_from(&spec.name);
        self.cpu_milli = spec.shape.cpu_milli;
        self.memory_bytes = spec.shape.memory_bytes;
        self.gpus.clone_from(&spec.gpus);
        self.process = None;
    }

    /// Writes the record durably into the instance's directory, which exists.
    pub(in crate::local) fn save(&self, directory: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        // An engine that cannot read a record does not start.
        if text.len() as u64 > MAX_LENGTH {
            return Err(io::Error::other("a record is too long"));
        }
        files::write_durably(&directory.join(FILE), &text, 0o600)
    }

    /// Reads the record in an instance's directory; `None` when there is none, because the instance was never created.
    pub(in crate::local) fn load(directory: &Path) -> io::Result<Option<Self>> {
        let path = directory.join(FILE);
        let found = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        if found.len() > MAX_LENGTH {
            return Err(io::Error::other("a record is too long"));
        }
        Ok(Some(serde_json::from_slice(&fs::read(path)?)?))
    }

    /// Removes the record.
    pub(in crate::local) fn remove(directory: &Path) -> io::Result<()> {
        files::ignore_missing(fs::remove_file(directory.join(FILE)))
    }
}

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
            record.image = root_image.path;
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
