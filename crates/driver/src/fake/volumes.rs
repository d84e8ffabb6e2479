//! Volumes and mounts in the fake's world, and what can go wrong with them.

use serde::{Deserialize, Serialize};
use tarn_model::ids::{InstanceId, VolumeId};

use super::world::{Volume, World};
use crate::{Error, ObservedVolume, VolumeSpec};

/// What is the matter with a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Trouble {
    /// It is there and cannot be used, in the words for its owner.
    Damaged(String),
    /// It is nowhere to be seen.
    Lost,
}

impl World {
    /// A volume that got lost is not made a second time: whoever asks for that has overlooked that it is missing.
    pub(super) fn ensure_volume(&mut self, spec: &VolumeSpec) -> Result<ObservedVolume, Error> {
        let new = Volume { size_bytes: spec.size_bytes, used_bytes: 0, trouble: None };
        let volume = self.volumes.entry(spec.id.clone()).or_insert(new);
        volume.must_be_right(&spec.id)?;
        volume.size_bytes = volume.size_bytes.max(spec.size_bytes);
        volume.observe().ok_or_else(|| missing(&spec.id))
    }

    pub(super) fn remove_volume(&mut self, id: &VolumeId) -> Result<(), Error> {
        let users = self.instances.iter().filter(|(_, instance)| instance.volumes.contains(id));
        let users: Vec<&str> = users.map(|(user, _)| user.as_str()).collect();
        if !users.is_empty() {
            return Err(Error::Permanent(format!("{id} is still mounted in {}", users.join(", "))));
        }
        self.volumes.remove(id);
        Ok(())
    }

    pub(super) fn ensure_mount(&mut self, volume: &VolumeId, instance: &InstanceId) -> Result<(), Error> {
        self.must_be_usable(volume)?;
        let instance = self.running(instance)?;
        instance.volumes.insert(volume.clone());
        Ok(())
    }

    pub(super) fn remove_mount(&mut self, volume: &VolumeId, instance: &InstanceId) -> Result<(), Error> {
        let Some(instance) = self.instances.get_mut(instance) else { return Ok(()) };
        let users = instance.holders(volume);
        if !users.is_empty() {
            return Err(Error::Permanent(format!("{volume} is in use by {}", crate::listed(&users))));
        }
        instance.volumes.remove(volume);
        Ok(())
    }

    /// Refuses a volume that is not there or cannot be used.
    pub(super) fn must_be_usable(&self, id: &VolumeId) -> Result<(), Error> {
        self.volumes.get(id).ok_or_else(|| missing(id))?.must_be_right(id)
    }

    /// Gives a volume trouble, or takes it away.
    pub(super) fn trouble(&mut self, id: &VolumeId, trouble: Option<Trouble>) -> Result<(), Error> {
        self.volumes.get_mut(id).ok_or_else(|| missing(id))?.trouble = trouble;
        Ok(())
    }

    /// Writes to a volume, up to so many bytes in all.
    pub(super) fn fill(&mut self, id: &VolumeId, used_bytes: u64) -> Result<(), Error> {
        self.volumes.get_mut(id).ok_or_else(|| missing(id))?.used_bytes = used_bytes;
        Ok(())
    }
}

impl Volume {
    /// What is seen of it, if it is to be seen.
    pub(super) fn observe(&self) -> Option<ObservedVolume> {
        let (used_bytes, fault) = match &self.trouble {
            None => (Some(self.used_bytes), None),
            Some(Trouble::Damaged(words)) => (None, Some(words.clone())),
            Some(Trouble::Lost) => return None,
        };
        Some(ObservedVolume { size_bytes: self.size_bytes, used_bytes, fault })
    }

    fn must_be_right(&self, id: &VolumeId) -> Result<(), Error> {
        match &self.trouble {
            None => Ok(()),
            Some(Trouble::Damaged(words)) => Err(Error::Permanent(format!("volume {id} cannot be used: {words}"))),
            Some(Trouble::Lost) => Err(missing(id)),
        }
    }
}

fn missing(id: &VolumeId) -> Error {
    Error::Permanent(format!("there is no volume {id}"))
}
