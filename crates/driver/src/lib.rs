//! Drivers: the only code that touches compute. A driver creates instances, volumes and mounts, and reports what
//! exists.
//!
//! Drivers know the `model` and the `link` to the guests, and nothing of the database, of requests or of HTTP. Every
//! method is idempotent: `ensure_…` of what exists and `remove_…` of what is gone both succeed, because a call that
//! timed out may have taken effect and is tried again. Start reading at [`Driver`]; [`fake`] is the smallest complete
//! implementation, and `conformance` is the suite that every driver has to pass, for tests only.

#[cfg(feature = "testing")]
pub mod conformance;
pub mod fake;
pub mod findings;
pub mod gpus;
pub mod host;
pub mod local;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use tarn_model::capacity::{Inventory, Shape};
use tarn_model::gpus::{GpuObservation, ObservedGpu};
use tarn_model::ids::{ClusterId, InstanceId, VolumeId};

/// Why a call failed, classified by what the caller has to do next. The texts are shown to the owner of the object: no
/// paths, no secrets, nothing of other tenants. What only the operator needs goes to the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It may succeed when tried again.
    #[error("{0}")]
    Retry(String),
    /// It will not succeed, however often it is tried.
    #[error("{0}")]
    Permanent(String),
    /// The driver has no such function.
    #[error("{0}")]
    Unsupported(String),
}

/// What a driver supports besides instances; checked before a request is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Volumes and mounts.
    pub volumes: bool,
    /// Mounts into running instances.
    pub live_mounts: bool,
    /// Instances from container images.
    pub containers: bool,
}

/// The desired state of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceSpec {
    pub id: InstanceId,
    /// Instances of one cluster can reach each other.
    pub cluster: ClusterId,
    pub node: u32,
    /// The host name.
    pub name: String,
    pub shape: Shape,
    pub gpus: Vec<String>,
    /// The exact name of the container image, as returned by [`Driver::ensure_image`]; `None` for the driver's default.
    pub container: Option<String>,
    /// Counts the starts. An instance that was observed with a lower number is restarted.
    pub boot: u32,
    /// The volumes to mount at the start.
    pub volumes: Vec<VolumeId>,
    /// The share that a pull counts for if the image has to be pulled again, as in [`Driver::ensure_image`].
    pub share: String,
}

/// The keys and host names that the guest of an instance is configured with.
pub use tarn_link::Configuration as Access;

/// A stream of bytes to the guest of an instance; the `link` crate defines what is sent on it.
pub type GuestStream = Box<dyn tarn_link::Stream>;

/// The desired state of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    pub id: VolumeId,
    /// A smaller existing volume is grown; a larger one is left as it is.
    pub size_bytes: u64,
}

/// The observed state of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedInstance {
    pub cluster: ClusterId,
    pub running: bool,
    pub boot: u32,
    pub private_ip: String,
    /// The mounted volumes.
    pub volumes: Vec<VolumeId>,
    /// Why it does not run, if that is known.
    pub end: Option<End>,
}

/// How an instance ended without having been asked to.
pub use tarn_model::instance_end::End;

/// The observed state of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedVolume {
    pub size_bytes: u64,
    /// Used space including the metadata of the filesystem; `None` while it cannot be determined.
    pub used_bytes: Option<u64>,
    /// Why the volume cannot be used and what its owner can do about it. While a fault is set, nothing but its removal
    /// touches the volume. A repaired volume has no fault.
    pub fault: Option<String>,
}

impl ObservedVolume {
    /// Returns the size in gigabytes of 10^9 bytes, rounded: volumes are requested in whole gigabytes, and a filesystem
    /// may leave a little unused at its end.
    pub fn size_gb(&self) -> u64 {
        self.size_bytes.saturating_add(500_000_000) / 1_000_000_000
    }
}

/// A process in an instance that keeps a volume from being unmounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeUser {
    /// The process id inside the instance.
    pub pid: u32,
    /// The name of its program. The tenant chooses it, so only a few dozen printable characters are kept.
    pub program: String,
}

impl std::fmt::Display for VolumeUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (process {})", self.program, self.pid)
    }
}

/// Everything of this installation that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    pub instances: BTreeMap<InstanceId, ObservedInstance>,
    pub volumes: BTreeMap<VolumeId, ObservedVolume>,
}

/// How many processes are format_short_list by name.
const NAMED: usize = 10;

/// Formats processes for an error message: the first ones by name, then how many more there are.
pub fn format_short_list(processes: &[impl std::fmt::Display]) -> String {
    let mut words: Vec<String> = processes.iter().take(NAMED).map(ToString::to_string).collect();
    if processes.len() > NAMED {
        words.push(format!("and {} more", processes.len() - NAMED));
    }
    words.join(", ")
}

/// The operations of a driver. Each may be called again after any failure, and returns only when its effect is in
/// place.
#[async_trait]
pub trait Driver: Send + Sync + 'static {
    /// Returns the driver's name in the configuration.
    fn name(&self) -> &'static str;

    /// Returns what the driver supports.
    fn capabilities(&self) -> Capabilities;

    /// Returns the resources that instances can be given.
    async fn inventory(&self) -> Result<Inventory, Error>;

    /// Returns a text that differs after every boot of the host, for drivers whose instances end with it. `None` where
    /// that is unknown or irrelevant.
    async fn host_boot(&self) -> Result<Option<String>, Error> {
        Ok(None)
    }

    /// Makes a container image ready to start instances from, and returns its exact name,
    /// `registry/repository@sha256:…`. Images are a cache: an image may be evicted, and is then pulled again when it is
    /// needed. Pulls of one `share`, an opaque text, get their turns together, so that one share cannot delay another.
    /// `progress` is called now and then with a text for the owner. Permanent failures are: an invalid name, an image
    /// that does not exist or is for another platform, a rejected login, an unreachable registry, and contents that do
    /// not match.
    async fn ensure_image(
        &self,
        _reference: &str,
        _share: &str,
        _progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<String, Error> {
        Err(Error::Unsupported(format!("the driver {} has no container images", self.name())))
    }

    /// Observes every GPU: which exist, their health, and whether a process uses one that it does not own. A driver
    /// that cannot observe GPUs reports all of them as healthy.
    async fn gpus(&self) -> Result<GpuObservation, Error> {
        Ok(GpuObservation::complete(self.inventory().await?.gpus.into_iter().map(ObservedGpu::plain).collect()))
    }

    /// Ensures the instance exists and runs in the start that `spec.boot` names, with its volumes mounted. An instance
    /// observed with that number or a higher one is left as it is. Never runs two instances of the same id.
    async fn ensure_instance(&self, spec: &InstanceSpec) -> Result<ObservedInstance, Error>;

    /// Gives a running instance its keys and the names of its peers, replacing the previous ones. An absent instance is
    /// a permanent failure.
    async fn configure_instance(&self, id: &InstanceId, access: &Access) -> Result<(), Error>;

    /// Opens a new stream to the guest of a running instance. The engine connects to the guest, never the other way
    /// round.
    async fn connect(&self, id: &InstanceId) -> Result<GuestStream, Error>;

    /// Removes the instance and everything that was created for it, its mounts first. Volumes are left as they are.
    async fn remove_instance(&self, id: &InstanceId) -> Result<(), Error>;

    /// Returns how many bytes all volumes may have together: the free space and what they already use. Volumes are
    /// allocated sparsely, so the caller must not promise more than this.
    async fn pool(&self) -> Result<u64, Error>;

    /// Ensures the volume exists with at least its size; never touches the data of an existing one.
    async fn ensure_volume(&self, spec: &VolumeSpec) -> Result<ObservedVolume, Error>;

    /// Removes the volume and its data for good. Refused while it is mounted anywhere.
    async fn remove_volume(&self, id: &VolumeId) -> Result<(), Error>;

    /// Mounts the volume in a running instance; only for drivers with live mounts.
    async fn ensure_mount(&self, volume: &VolumeId, instance: &InstanceId) -> Result<(), Error>;

    /// Returns the processes in an instance that use the volume there; none when it is not mounted or the instance is
    /// gone.
    async fn volume_users(&self, volume: &VolumeId, instance: &InstanceId) -> Result<Vec<VolumeUser>, Error>;

    /// Asks the processes that use the volume in an instance to end, and kills those that still use it after the grace
    /// period. Returns the killed ones.
    async fn end_volume_users(
        &self,
        volume: &VolumeId,
        instance: &InstanceId,
        grace: Duration,
    ) -> Result<Vec<VolumeUser>, Error>;

    /// Unmounts the volume from a running instance. Fails permanently, naming the processes, while any use it there.
    /// Succeeds when the instance is gone.
    async fn remove_mount(&self, volume: &VolumeId, instance: &InstanceId) -> Result<(), Error>;

    /// Restores what isolates instances from each other where something else has changed it: other programs reload the
    /// host's firewall, too. Called every few seconds, so it must cost next to nothing when nothing has changed.
    async fn restore_isolation(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Observes one instance; `None` when it does not exist.
    async fn observe_instance(&self, id: &InstanceId) -> Result<Option<ObservedInstance>, Error>;

    /// Returns how many processes of an instance the kernel has killed since its start for lack of memory; `None` where
    /// that is not counted.
    async fn memory_kills(&self, _id: &InstanceId) -> Result<Option<u64>, Error> {
        Ok(None)
    }

    /// Observes one volume; `None` when it does not exist.
    async fn observe_volume(&self, id: &VolumeId) -> Result<Option<ObservedVolume>, Error>;

    /// Observes everything of this installation.
    async fn observe(&self) -> Result<Observed, Error>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_process_list_is_truncated() {
        let volume_users: Vec<_> = (1..=12).map(|pid| VolumeUser { pid, program: "bash".into() }).collect();
        assert_eq!(format_short_list(&volume_users[..1]), "bash (process 1)");
        assert!(
            format_short_list(&volume_users).ends_with("bash (process 10), and 2 more"),
            "{}",
            format_short_list(&volume_users)
        );
    }
}
