//! What happens in the fake's world by itself, as tests and trials want it: deaths, damage, and processes that use volumes.
//! None of it has faults.

use tarn_model::ids::{InstanceId, VolumeId};

use super::FakeDriver;
use super::volumes::Trouble;
use crate::{End, Error};

impl FakeDriver {
    /// Lets an instance die without having been asked to.
    pub async fn kill(&self, id: &InstanceId, end: End) -> Result<(), Error> {
        let id = id.clone();
        self.in_group(move |world| world.kill(&id, end)).await
    }

    /// Lets the machine be restarted: everything on it ends, and is kept.
    pub async fn reboot(&self) -> Result<(), Error> {
        self.in_group(|world| {
            world.reboot();
            Ok(())
        })
        .await
    }

    /// The keys that an instance was told last, for tests that want to see them arrive; `None` when there is no such thing.
    pub async fn keys_of(&self, id: &InstanceId) -> Result<Option<Vec<String>>, Error> {
        let id = id.clone();
        self.look(move |world| world.instances.get(&id).map(|instance| instance.public_keys.clone())).await
    }

    /// Starts a process in an instance that uses a volume there and does not leave by itself; returns its number.
    pub async fn hold(&self, volume: &VolumeId, instance: &InstanceId, program: &str) -> Result<u32, Error> {
        self.use_volume(volume, instance, program, false).await
    }

    /// Starts a process in an instance that uses a volume there and leaves when it is asked to; returns its number.
    pub async fn visit(&self, volume: &VolumeId, instance: &InstanceId, program: &str) -> Result<u32, Error> {
        self.use_volume(volume, instance, program, true).await
    }

    /// Damages a volume; the words are for its owner.
    pub async fn damage(&self, volume: &VolumeId, words: &str) -> Result<(), Error> {
        self.set_trouble(volume, Some(Trouble::Damaged(words.to_owned()))).await
    }

    /// Lets a volume be nowhere to be seen.
    pub async fn lose(&self, volume: &VolumeId) -> Result<(), Error> {
        self.set_trouble(volume, Some(Trouble::Lost)).await
    }

    /// Makes a volume right again, with its data.
    pub async fn mend(&self, volume: &VolumeId) -> Result<(), Error> {
        self.set_trouble(volume, None).await
    }

    /// Lets so many bytes of a volume be used.
    pub async fn fill(&self, volume: &VolumeId, used_bytes: u64) -> Result<(), Error> {
        let volume = volume.clone();
        self.in_group(move |world| world.fill(&volume, used_bytes)).await
    }

    async fn use_volume(
        &self,
        volume: &VolumeId,
        instance: &InstanceId,
        program: &str,
        polite: bool,
    ) -> Result<u32, Error> {
        let (volume, instance, program) = (volume.clone(), instance.clone(), program.to_owned());
        self.in_group(move |world| world.hold(&volume, &instance, &program, polite)).await
    }

    async fn set_trouble(&self, volume: &VolumeId, trouble: Option<Trouble>) -> Result<(), Error> {
        let volume = volume.clone();
        self.in_group(move |world| world.trouble(&volume, trouble)).await
    }
}
