//! The fake's world and what the driver's methods do to its instances: plain values, no files and no randomness.
//!
//! It is stricter than a real host. What the control plane must never ask for (a GPU twice, more memory than exists) is
//! a permanent error here, so that a wrong placement fails a test.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tarn_model::capacity::Inventory;
use tarn_model::ids::{ClusterId, InstanceId, VolumeId};

use super::checks;
use super::script::Process;
use super::volumes::VolumeFault;
use crate::{Access, End, Error, InstanceSpec, Observed, ObservedInstance};

/// Everything that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct World {
    pub(super) instances: BTreeMap<InstanceId, Instance>,
    pub(super) volumes: BTreeMap<VolumeId, Volume>,
    /// How often the host was restarted. Absent in worlds of earlier versions.
    #[serde(default)]
    pub(super) reboots: u64,
}

/// An instance that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Instance {
    pub(super) cluster: ClusterId,
    pub(super) node: u32,
    pub(super) boot: u32,
    pub(super) running: bool,
    pub(super) private_ip: String,
    pub(super) volumes: BTreeSet<VolumeId>,
    pub(super) public_keys: Vec<String>,
    pub(super) hosts: Vec<(String, String)>,
    pub(super) gpus: Vec<String>,
    pub(super) cpu_milli: u64,
    pub(super) memory_bytes: u64,
    /// Absent in worlds of earlier versions.
    #[serde(default)]
    pub(super) end: Option<End>,
    /// The processes that use its volumes.
    #[serde(default)]
    pub(super) processes: Vec<Process>,
}

/// A volume that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Volume {
    pub(super) size_bytes: u64,
    /// This and the following fields are absent in worlds of earlier versions.
    #[serde(default)]
    pub(super) used_bytes: u64,
    #[serde(default)]
    pub(super) trouble: Option<VolumeFault>,
}

impl World {
    pub(super) fn ensure_instance(
        &mut self,
        spec: &InstanceSpec,
        inventory: &Inventory,
    ) -> Result<ObservedInstance, Error> {
        let old = self.instances.get(&spec.id);
        if let Some(old) = old {
            checks::check_same_place(spec, old)?;
            if old.boot > spec.boot || (old.boot == spec.boot && old.running) {
                checks::check_same_resources(spec, old)?;
                return Ok(old.observe());
            }
        }
        checks::check_volumes(self, spec)?;
        checks::check_room(self, spec, inventory)?;
        let (public_keys, hosts) = old.map(|old| (old.public_keys.clone(), old.hosts.clone())).unwrap_or_default();
        let started = Instance {
            cluster: spec.cluster.clone(),
            node: spec.node,
            boot: spec.boot,
            running: true,
            private_ip: checks::choose_address(self, spec)?,
            volumes: spec.volumes.iter().cloned().collect(),
            public_keys,
            hosts,
            gpus: spec.gpus.clone(),
            cpu_milli: spec.shape.cpu_milli,
            memory_bytes: spec.shape.memory_bytes,
            end: None,
            processes: Vec::new(),
        };
        let observed = started.observe();
        self.instances.insert(spec.id.clone(), started);
        Ok(observed)
    }

    pub(super) fn configure_instance(&mut self, id: &InstanceId, access: &Access) -> Result<(), Error> {
        let instance = self.running(id)?;
        instance.public_keys = access.public_keys.clone();
        instance.hosts = access.hosts.clone();
        Ok(())
    }

    /// The instance stops running and keeps everything that it holds.
    pub(super) fn kill(&mut self, id: &InstanceId, end: End) -> Result<(), Error> {
        let instance = self.instance(id)?;
        instance.running = false;
        instance.processes.clear();
        instance.end = Some(end);
        Ok(())
    }

    /// Every instance stops running, and everything stays in place.
    pub(super) fn reboot(&mut self) {
        self.reboots += 1;
        for instance in self.instances.values_mut().filter(|instance| instance.running) {
            instance.running = false;
            instance.processes.clear();
            instance.volumes.clear();
            instance.end = Some(End::MachineRebooted);
        }
    }

    /// Its mounts are part of it and are removed with it.
    pub(super) fn remove_instance(&mut self, id: &InstanceId) -> Result<(), Error> {
        self.instances.remove(id);
        Ok(())
    }

    pub(super) fn observe(&self) -> Observed {
        Observed {
            instances: self.instances.iter().map(|(id, instance)| (id.clone(), instance.observe())).collect(),
            volumes: self.volumes.iter().filter_map(|(id, volume)| Some((id.clone(), volume.observe()?))).collect(),
        }
    }

    pub(super) fn running(&mut self, id: &InstanceId) -> Result<&mut Instance, Error> {
        let instance = self.instance(id)?;
        if instance.running { Ok(instance) } else { Err(Error::Permanent(format!("{id} does not run"))) }
    }

    fn instance(&mut self, id: &InstanceId) -> Result<&mut Instance, Error> {
        self.instances.get_mut(id).ok_or_else(|| Error::Permanent(format!("there is no instance {id}")))
    }
}

impl Instance {
    pub(super) fn observe(&self) -> ObservedInstance {
        ObservedInstance {
            cluster: self.cluster.clone(),
            running: self.running,
            boot: self.boot,
            private_ip: self.private_ip.clone(),
            volumes: self.volumes.iter().cloned().collect(),
            end: self.end,
        }
    }
}

/// References with this prefix fail permanently, for tests of failing pulls.
const FAULTY: &str = "fault.invalid/";

/// Returns the exact name of an image. An exact name stays as it is.
pub(super) fn exact_image_name(reference: &str) -> Result<String, Error> {
    if reference.starts_with(FAULTY) {
        return Err(Error::Permanent(format!("{reference} could not be pulled: there is no such registry")));
    }
    if reference.contains("@sha256:") {
        return Ok(reference.to_owned());
    }
    let digest = blake3::hash(reference.as_bytes()).to_hex();
    let slash = reference.rfind('/').map_or(0, |at| at + 1);
    // A colon before the last slash is the port of a registry.
    let tag = reference[slash..].find(':').map_or(reference.len(), |at| slash + at);
    Ok(format!("{}@sha256:{digest}", &reference[..tag]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_depends_only_on_the_name() {
        let exact = exact_image_name("127.0.0.1:5000/a/b:1").unwrap();
        assert!(exact.starts_with("127.0.0.1:5000/a/b@sha256:") && exact.len() == 26 + 64, "{exact}");
        assert_eq!(exact_image_name("127.0.0.1:5000/a/b:1").unwrap(), exact);
        assert_ne!(exact_image_name("127.0.0.1:5000/a/b:2").unwrap(), exact);
        assert_eq!(exact_image_name(&exact).unwrap(), exact);
        assert!(matches!(exact_image_name("fault.invalid/a"), Err(Error::Permanent(_))));
    }
}
