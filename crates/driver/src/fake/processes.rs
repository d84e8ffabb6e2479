//! The processes in the fake's instances: only those that use a volume, and only those that a test starts.

use serde::{Deserialize, Serialize};
use tarn_model::ids::{InstanceId, VolumeId};

use super::world::{Instance, World};
use crate::{Error, VolumeUser};

/// The first process id; smaller ones are the system's own.
const FIRST: u32 = 100;

/// A process that uses a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Process {
    pid: u32,
    program: String,
    volume: VolumeId,
    /// Whether it ends when asked to.
    polite: bool,
}

impl World {
    /// Starts a process that uses a volume, and returns its process id.
    pub(super) fn hold(
        &mut self,
        volume: &VolumeId,
        instance: &InstanceId,
        program: &str,
        polite: bool,
    ) -> Result<u32, Error> {
        let instance = self.running(instance)?;
        if !instance.volumes.contains(volume) {
            return Err(Error::Permanent(format!("{volume} is not mounted there")));
        }
        let pid = instance.processes.iter().map(|process| process.pid + 1).max().unwrap_or(FIRST);
        instance.processes.push(Process { pid, program: program.to_owned(), volume: volume.clone(), polite });
        Ok(pid)
    }

    /// Returns the processes that use a volume in an instance.
    pub(super) fn volume_users(&self, volume: &VolumeId, instance: &InstanceId) -> Vec<VolumeUser> {
        self.instances.get(instance).map(|instance| instance.volume_users(volume)).unwrap_or_default()
    }

    /// Ends the processes that use a volume in an instance, and returns those that had to be killed.
    pub(super) fn end_volume_users(&mut self, volume: &VolumeId, instance: &InstanceId) -> Vec<VolumeUser> {
        let Some(instance) = self.instances.get_mut(instance) else { return Vec::new() };
        instance.processes.retain(|process| !(process.volume == *volume && process.polite));
        let killed = instance.volume_users(volume);
        instance.processes.retain(|process| process.volume != *volume);
        killed
    }
}

impl Instance {
    pub(super) fn volume_users(&self, volume: &VolumeId) -> Vec<VolumeUser> {
        let users = self.processes.iter().filter(|process| process.volume == *volume);
        users.map(|process| VolumeUser { pid: process.pid, program: process.program.clone() }).collect()
    }
}
