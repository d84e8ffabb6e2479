//! Drivers: the only code that touches compute. A driver makes instances, volumes and mounts real, and says what is real.
//!
//! Drivers know the `model` and the `link` to the guests, and nothing of the database, of requests or of HTTP. Every verb is idempotent: `ensure_…` of
//! what exists already and `remove_…` of what is gone both succeed, because a verb that timed out may have worked and will
//! be tried again. Start reading at [`Driver`]; [`fake`] is the smallest complete one, and [`conformance`] is what every
//! driver has to pass.

pub mod conformance;
pub mod fake;
pub mod findings;
pub mod gpus;
pub mod local;
pub mod machine;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use tarn_model::capacity::{Inventory, Shape};
use tarn_model::gpus::{Look, Seen};
use tarn_model::ids::{ClusterId, InstanceId, VolumeId};

/// Why a verb did not work, as far as the caller has to decide. The texts are shown to the owner of the object: no paths, no
/// secrets, nothing of other tenants; what the operator needs besides goes to the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It may work when tried again.
    #[error("{0}")]
    Retry(String),
    /// It will not work, however often it is tried.
    #[error("{0}")]
    Permanent(String),
    /// This driver cannot do such a thing at all.
    #[error("{0}")]
    Unsupported(String),
}

/// What a driver can do besides instances, asked before a request is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Volumes and mounts.
    pub volumes: bool,
    /// Mounts into running instances.
    pub live_mounts: bool,
    /// Instances from container images.
    pub containers: bool,
}

/// An instance as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceSpec {
    /// Its id.
    pub id: InstanceId,
    /// The cluster it belongs to; instances of one cluster reach each other.
    pub cluster: ClusterId,
    /// Its number in the cluster.
    pub node: u32,
    /// Its host name.
    pub name: String,
    /// What it may use.
    pub shape: Shape,
    /// The GPUs it owns.
    pub gpus: Vec<String>,
    /// The container image by its exact name, which [`Driver::ensure_image`] has given, or none for the driver's default.
    pub container: Option<String>,
    /// Which start this is; an instance that was observed with a lower number is restarted.
    pub boot: u32,
    /// The volumes to be mounted when it starts.
    pub volumes: Vec<VolumeId>,
}

/// How people and its peers get into an instance: what the guest is told.
pub use tarn_link::Configuration as Access;

/// A stream of bytes to the guest of an instance; what goes over it is the `link`'s to say.
pub type GuestStream = Box<dyn tarn_link::Stream>;

/// A volume as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// Its id.
    pub id: VolumeId,
    /// Its size in bytes; a smaller existing one is grown, a larger one is left alone.
    pub size_bytes: u64,
}

/// An instance as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedInstance {
    /// The cluster it was made for.
    pub cluster: ClusterId,
    /// Whether it runs.
    pub running: bool,
    /// Which start this is.
    pub boot: u32,
    /// Its address.
    pub private_ip: String,
    /// What is mounted.
    pub volumes: Vec<VolumeId>,
    /// Why it does not run, as far as that is known.
    pub end: Option<End>,
}

/// How an instance came to its end without being asked to.
pub use tarn_model::instance_end::End;

/// A volume as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedVolume {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// What is taken of it, with what its filesystem needs for itself; nothing while that cannot be known.
    pub used_bytes: Option<u64>,
    /// Why it cannot be used and what can be done about it, for its owner. While there is a fault nothing but its removal
    /// touches it; it has none any more when somebody has mended it.
    pub fault: Option<String>,
}

impl ObservedVolume {
    /// Its size in gigabytes of 10^9 bytes. It was asked for in whole ones, and a filesystem may leave out a little at its end.
    pub fn size_gb(&self) -> u64 {
        self.size_bytes.saturating_add(500_000_000) / 1_000_000_000
    }
}

/// A process in an instance that keeps a volume from being unmounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number, as it is seen inside.
    pub pid: u32,
    /// The name of its program: chosen inside, so at most a few dozen plain characters are kept of it.
    pub program: String,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (process {})", self.program, self.pid)
    }
}

/// Everything of this installation that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// By id.
    pub instances: BTreeMap<InstanceId, ObservedInstance>,
    /// By id.
    pub volumes: BTreeMap<VolumeId, ObservedVolume>,
}

/// So many processes are told by name; of a thousand nobody would read the list.
const NAMED: usize = 10;

/// Processes as a list for a person: the first ones by name, and how many there are besides.
pub fn listed(processes: &[impl std::fmt::Display]) -> String {
    let mut words: Vec<String> = processes.iter().take(NAMED).map(ToString::to_string).collect();
    if processes.len() > NAMED {
        words.push(format!("and {} more", processes.len() - NAMED));
    }
    words.join(", ")
}

/// The verbs. Each may be called again after any failure, and each returns only when what it says is true.
#[async_trait]
pub trait Driver: Send + Sync + 'static {
    /// The driver's name in the configuration.
    fn name(&self) -> &'static str;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// What there is to give.
    async fn inventory(&self) -> Result<Inventory, Error>;

    /// Which start of the machine this is, where instances end with the machine: another text after each. `None` where nobody
    /// knows or it does not matter.
    async fn machine_boot(&self) -> Result<Option<String>, Error> {
        Ok(None)
    }

    /// Makes a container image ready to start instances from, and returns its exact name, `registry/repository@sha256:…`. An
    /// image is a cache: what was ready may be evicted, and is fetched again by whoever needs it. `progress` is told now and
    /// then how far it is, in words for the owner. A name that is none, an image that is not there or not for this machine,
    /// a login that was refused, a registry that does not answer and contents that are wrong are permanent failures.
    async fn ensure_image(
        &self,
        _reference: &str,
        _progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<String, Error> {
        Err(Error::Unsupported(format!("the driver {} has no container images", self.name())))
    }

    /// Looks at every GPU: which there are, how they are, and whether somebody uses one who does not own it. A driver that
    /// cannot look says of all that nothing is wrong with them.
    async fn gpus(&self) -> Result<Look, Error> {
        Ok(Look::complete(self.inventory().await?.gpus.into_iter().map(Seen::plain).collect()))
    }

    /// Makes the instance exist and run, in the start that `spec.boot` names, with its volumes mounted. One that was observed
    /// with that number or a higher one is left alone. Never runs a second one of the same id.
    async fn ensure_instance(&self, spec: &InstanceSpec) -> Result<ObservedInstance, Error>;

    /// Gives a running instance its keys and the names of its peers, replacing what it had; one that is not there is a
    /// permanent failure.
    async fn configure_instance(&self, id: &InstanceId, access: &Access) -> Result<(), Error>;

    /// A new stream to the guest of a running instance. The engine dials, never the guest.
    async fn connect(&self, id: &InstanceId) -> Result<GuestStream, Error>;

    /// Removes the instance with all that was made for it, its mounts first. Volumes are left alone.
    async fn remove_instance(&self, id: &InstanceId) -> Result<(), Error>;

    /// How many bytes all volumes may have together: what is free for them now and what they have taken already. Volumes are
    /// made without all of their space, so it is for the caller to promise no more than this.
    async fn pool(&self) -> Result<u64, Error>;

    /// Makes the volume exist with at least its size; never touches the data of one that exists.
    async fn ensure_volume(&self, spec: &VolumeSpec) -> Result<ObservedVolume, Error>;

    /// Removes the volume and its data for good. Refused while it is mounted anywhere.
    async fn remove_volume(&self, id: &VolumeId) -> Result<(), Error>;

    /// Mounts the volume in a running instance; only for drivers that can do that live.
    async fn ensure_mount(&self, volume: &VolumeId, instance: &InstanceId) -> Result<(), Error>;

    /// The processes in an instance that use the volume there; none when it is not mounted or the instance is gone.
    async fn holders(&self, volume: &VolumeId, instance: &InstanceId) -> Result<Vec<Holder>, Error>;

    /// Asks the processes that use the volume in an instance to end, and kills those that still use it when the grace is
    /// over. Returns the killed ones.
    async fn end_holders(
        &self,
        volume: &VolumeId,
        instance: &InstanceId,
        grace: Duration,
    ) -> Result<Vec<Holder>, Error>;

    /// Unmounts the volume from a running instance, and fails for good, with their names, while processes use it there; also
    /// succeeds when the instance is gone.
    async fn remove_mount(&self, volume: &VolumeId, instance: &InstanceId) -> Result<(), Error>;

    /// Makes what keeps instances apart as it was made, should somebody have changed it: a machine's firewall is reloaded by
    /// others, too. It is called every few seconds, and must cost next to nothing when all is right.
    async fn keep(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Looks at one instance; `None` when there is no such thing.
    async fn observe_instance(&self, id: &InstanceId) -> Result<Option<ObservedInstance>, Error>;

    /// How many processes of an instance were ended since its start because they needed more memory than it has; `None` where
    /// nobody counts them.
    async fn memory_kills(&self, _id: &InstanceId) -> Result<Option<u64>, Error> {
        Ok(None)
    }

    /// Looks at one volume; `None` when there is no such thing.
    async fn observe_volume(&self, id: &VolumeId) -> Result<Option<ObservedVolume>, Error>;

    /// Looks at everything of this installation.
    async fn observe(&self) -> Result<Observed, Error>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_cut() {
        let holders: Vec<_> = (1..=12).map(|pid| Holder { pid, program: "bash".into() }).collect();
        assert_eq!(listed(&holders[..1]), "bash (process 1)");
        assert!(listed(&holders).ends_with("bash (process 10), and 2 more"), "{}", listed(&holders));
    }
}
