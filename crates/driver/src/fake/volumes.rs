//! Volumes and mounts in the fake's world, and what can go wrong with them.

use serde::{Deserialize, Serialize};
use tarn_model::ids::{InstanceId, VolumeId};

use super::world::{Volume, World};
use crate::{Error, ObservedVolume, VolumeSpec};

/// A fault of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum VolumeFault {
    /// It exists and cannot be used; the text is for its owner.
    Damaged(String),
    /// It has disappeared.
    Lost,
}

impl World {
    /// A lost volume is not created a second time: the caller has overlooked that it is missing.
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
        let users = instance.volume_users(volume);
        if !users.is_empty() {
            return Err(Error::Permanent(format!("{volume} is in use by {}", crate::format_short_list(&users))));
        }
        instance.volumes.remove(volume);
        Ok(())
    }

    /// Refuses a volume that does not exist or cannot be used.
    pub(super) fn must_be_usable(&self, id: &VolumeId) -> Result<(), Error> {
        self.volumes.get(id).ok_or_else(|| missing(id))?.must_be_right(id)
    }

    /// Sets or clears the fault of a volume.
    pub(super) fn set_fault(&mut self, id: &VolumeId, trouble: Option<VolumeFault>) -> Result<(), Error> {
        self.volumes.get_mut(id).ok_or_else(|| missing(id))?.trouble = trouble;
        Ok(())
    }

    /// Sets how many bytes of a volume are used.
    pub(super) fn fill(&mut self, id: &VolumeId, used_bytes: u64) -> Result<(), Error> {
        self.volumes.get_mut(id).ok_or_else(|| missing(id))?.used_bytes = used_bytes;
        Ok(())
    }
}

impl Volume {
    /// Returns what is observed of it; `None` for a lost volume.
    pub(super) fn observe(&self) -> Option<ObservedVolume> {
        let (used_bytes, fault) = match &self.trouble {
            None => (Some(self.used_bytes), None),
            Some(VolumeFault::Damaged(words)) => (None, Some(words.clone())),
            Some(VolumeFault::Lost) => return None,
        };
        Some(ObservedVolume { size_bytes: self.size_bytes, used_bytes, fault })
    }

    fn must_be_right(&self, id: &VolumeId) -> Result<(), Error> {
        match &self.trouble {
            None => Ok(()),
            Some(VolumeFault::Damaged(words)) => Err(Error::Permanent(format!("volume {id} cannot be used: {words}"))),
            Some(VolumeFault::Lost) => Err(missing(id)),
        }
    }
}

fn missing(id: &VolumeId) -> Error {
    Error::Permanent(format!("there is no volume {id}"))
}
