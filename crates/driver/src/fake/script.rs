//! Events in the fake's world that tests and demonstrations trigger: deaths, damage, and processes that use volumes.
//! None of these calls has injected faults.

use serde::{Deserialize, Serialize};
use tarn_model::ids::{InstanceId, VolumeId};

use super::FakeDriver;
use super::volumes::VolumeFault;
use super::world::{Instance, World};
use crate::{End, Error, VolumeUser};

impl FakeDriver {
    /// Lets an instance die unexpectedly.
    pub async fn kill(&self, id: &InstanceId, end: End) -> Result<(), Error> {
        let id = id.clone();
        self.run_in_group(move |world| world.kill(&id, end)).await
    }

    /// Restarts the host: every instance ends and is kept.
    pub async fn reboot(&self) -> Result<(), Error> {
        self.run_in_group(|world| {
            world.reboot();
            Ok(())
        })
        .await
    }

    /// Returns the keys that an instance was last configured with; `None` when it does not exist.
    pub async fn keys_of(&self, id: &InstanceId) -> Result<Option<Vec<String>>, Error> {
        let id = id.clone();
        self.read_from_world(move |world| world.instances.get(&id).map(|instance| instance.public_keys.clone())).await
    }

    /// Starts a process in an instance that uses a volume there and ignores requests to end; returns its process id.
    pub async fn hold(&self, volume: &VolumeId, instance: &InstanceId, program: &str) -> Result<u32, Error> {
        self.use_volume(volume, instance, program, false).await
    }

    /// Starts a process in an instance that uses a volume there and ends when asked to; returns its process id.
    pub async fn visit(&self, volume: &VolumeId, instance: &InstanceId, program: &str) -> Result<u32, Error> {
        self.use_volume(volume, instance, program, true).await
    }

    /// Damages a volume; the text is shown to its owner.
    pub async fn damage(&self, volume: &VolumeId, words: &str) -> Result<(), Error> {
        self.set_volume_fault(volume, Some(VolumeFault::Damaged(words.to_owned()))).await
    }

    /// Makes a volume disappear.
    pub async fn lose(&self, volume: &VolumeId) -> Result<(), Error> {
        self.set_volume_fault(volume, Some(VolumeFault::Lost)).await
    }

    /// Repairs a volume, with its data.
    pub async fn mend(&self, volume: &VolumeId) -> Result<(), Error> {
        self.set_volume_fault(volume, None).await
    }

    /// Sets how many bytes of a volume are used.
    pub async fn fill(&self, volume: &VolumeId, used_bytes: u64) -> Result<(), Error> {
        let volume = volume.clone();
        self.run_in_group(move |world| world.fill(&volume, used_bytes)).await
    }

    async fn use_volume(
        &self,
        volume: &VolumeId,
        instance: &InstanceId,
        program: &str,
        polite: bool,
    ) -> Result<u32, Error> {
        let (volume, instance, program) = (volume.clone(), instance.clone(), program.to_owned());
        self.run_in_group(move |world| world.hold(&volume, &instance, &program, polite)).await
    }

    async fn set_volume_fault(&self, volume: &VolumeId, trouble: Option<VolumeFault>) -> Result<(), Error> {
        let volume = volume.clone();
        self.run_in_group(move |world| world.set_fault(&volume, trouble)).await
    }
}

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
