//! The messages between the driver and its helper: one JSON text per line.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tarn_model::ids::VolumeId;

use crate::gpus::cdi::Edits;
use crate::local::host::loop_device::FileIdentity;
use crate::local::host::processes::Process;
use crate::local::protections::{Protection, Protections};

/// An order to the helper; the first line on its input.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::local) enum Order {
    /// Starts an instance.
    Start(Box<Start>),
    /// Mounts volumes in an existing instance.
    Mount(Mount),
    /// Unmounts a volume.
    Unmount(Unmount),
    /// Tries whether this host can build a root filesystem.
    Probe(Probe),
    /// Shows the files of lxcfs in an instance, or removes them.
    ShowLxcfs(ShowLxcfs),
    /// Tries whether the lxcfs that is mounted in this directory answers.
    ReadLxcfs(PathBuf),
    /// Unpacks a layer of an image, whose bytes follow on the same input until its end.
    Unpack(Unpack),
}

/// Everything that the helper has to know to start an instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::local) struct Start {
    pub(in crate::local) id: String,
    pub(in crate::local) hostname: String,
    /// The directory of the image: it contains `root` and, for the host image, `hide`.
    pub(in crate::local) image: PathBuf,
    /// The container image below it; `None` for the host image.
    pub(in crate::local) container: Option<Layers>,
    pub(in crate::local) disk: Disk,
    /// The runtime directory of the instance.
    pub(in crate::local) run: PathBuf,
    /// The guest binary.
    pub(in crate::local) guest: PathBuf,
    /// The first user and group id on the host that belongs to the instance; its `root`.
    pub(in crate::local) id_base: u32,
    /// Its control group, relative to the root of the hierarchy.
    pub(in crate::local) cgroup: String,
    /// The CPUs it may run on.
    pub(in crate::local) cpus: String,
    pub(in crate::local) memory_bytes: u64,
    /// The maximum number of processes and threads.
    pub(in crate::local) pids: u64,
    /// The protections that are in force.
    pub(in crate::local) protections: Protections,
    /// The volumes that it will have. A separate order mounts them: the kernel locks mounts that exist before the
    /// instance has its own namespaces, and they could not be unmounted while it runs.
    pub(in crate::local) volumes: Vec<VolumeId>,
    /// What it needs to use its GPUs.
    pub(in crate::local) devices: Edits,
    /// What shows it its own share of the host, if the host has that.
    pub(in crate::local) lxcfs: Option<Lxcfs>,
}

impl Start {
    /// Returns the user of the host that owns the instance's user namespace.
    pub(in crate::local) fn namespace_owner(&self) -> u32 {
        if self.protections.have(Protection::OwnCounts) { self.id_base } else { 0 }
    }
}

/// The disk of an instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::local) enum Disk {
    Directory(PathBuf),
    /// A filesystem on a device, which the engine keeps open.
    Device {
        device: PathBuf,
        /// The device number.
        number: u64,
        /// The file behind the device.
        file: FileIdentity,
    },
}

/// A container image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::local) struct Layers {
    /// The directory trees of its layers, highest first.
    pub(in crate::local) layers: Vec<PathBuf>,
    /// How its programs are run, for the guest.
    pub(in crate::local) image: tarn_link::Image,
}

/// Mounts volumes in an instance. Volumes that are already mounted stay as they are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::local) struct Mount {
    /// Its first process.
    pub(in crate::local) process: Process,
    /// The first of its user and group ids.
    pub(in crate::local) id_base: u32,
    pub(in crate::local) volumes: Vec<Volume>,
}

/// A volume and its device, which the engine keeps open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::local) struct Volume {
    pub(in crate::local) id: VolumeId,
    pub(in crate::local) device: PathBuf,
    /// The device number.
    pub(in crate::local) number: u64,
    /// The file behind the device: the device number is reused as soon as the engine is gone.
    pub(in crate::local) file: FileIdentity,
}

/// Unmounts a volume from an instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::local) struct Unmount {
    /// The first process of the instance.
    pub(in crate::local) process: Process,
    pub(in crate::local) id: VolumeId,
    /// The device number.
    pub(in crate::local) number: u64,
}

/// A mounted lxcfs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::local) struct Lxcfs {
    /// Where it is mounted on the host.
    pub(in crate::local) directory: PathBuf,
    /// The number of its device: another one that is mounted there later has another.
    pub(in crate::local) device: u64,
}

/// Lets an instance show the files of one lxcfs and of no other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::local) struct ShowLxcfs {
    /// The first process of the instance.
    pub(in crate::local) process: Process,
    /// `None` removes the files.
    pub(in crate::local) lxcfs: Option<Lxcfs>,
}

/// Tries what a start needs of the kernel; leaves nothing behind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::local) struct Probe {
    /// A directory on the filesystem to try.
    pub(in crate::local) directory: PathBuf,
}

/// Unpacks a layer of an image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::local) struct Unpack {
    /// The target: an empty directory. The unpacking process sees nothing but its contents.
    pub(in crate::local) directory: PathBuf,
    /// The first of the host's ids to which the ids of the layer are mapped while it is unpacked.
    pub(in crate::local) id_base: u32,
    /// The maximum size.
    pub(in crate::local) most_bytes: u64,
    /// The maximum number of files, directories and links.
    pub(in crate::local) most_entries: u64,
}

/// What was unpacked. A hostile layer may have taken over the process that reports it, so it is trusted only with
/// regard to the layer itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::local) struct Unpacked {
    /// The SHA-256 of the uncompressed archive, in hexadecimal.
    pub(in crate::local) digest: String,
    /// The approximate space that it uses.
    pub(in crate::local) bytes: u64,
    /// The number of files, directories and links.
    pub(in crate::local) entries: u64,
    /// The number of device files that were skipped.
    pub(in crate::local) devices: u64,
}

/// The driver's reply when the network is connected and the process is recorded: the instance may begin. Anything else,
/// also the end of the driver, means that it must not.
pub(in crate::local) const BEGIN: &str = "begin";

/// The reports of the helper: for a start in this order, for everything else only `Done` or a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::local) enum Report {
    /// The namespaces exist; this process keeps them, and the network may be connected to it.
    Namespaces { pid: u32 },
    /// The instance is complete and waits to begin.
    Created {
        /// Its first process.
        pid: u32,
    },
    /// It runs.
    Begun,
    /// The order is carried out.
    Done,
    /// The current size of a layer.
    Grown { bytes: u64 },
    /// A directory of a layer hides the contents of lower layers.
    Opaque {
        /// The path in the layer; names are bytes.
        path: Vec<u8>,
    },
    /// The layer is unpacked.
    Unpacked(Unpacked),
    /// The layer can never be unpacked.
    Unfit {
        /// For the owner.
        reason: String,
    },
    /// The unpacked layer is larger than the available space.
    Full,
    /// A volume is in a state that the engine must report; nothing is left half done.
    Refused(Refused),
    /// The order failed; nothing of it is left running.
    Failed {
        /// The number of the kernel's error, if it was one.
        errno: Option<i32>,
        /// For the operator.
        reason: String,
    },
}

/// Why a volume could not be mounted or unmounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::local) struct Refused {
    pub(in crate::local) volume: VolumeId,
    pub(in crate::local) why: Why,
}

/// The reasons that the engine distinguishes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::local) enum Why {
    /// The kernel reports that its filesystem is damaged.
    Damaged {
        /// The message of the kernel, for the operator.
        reason: String,
    },
    /// The kernel cannot read or write it.
    Unreadable {
        /// The message of the kernel, for the operator.
        reason: String,
    },
    /// Something inside blocks the mount point, or it was moved away while it was mounted.
    Taken {
        /// For the owner.
        what: String,
    },
    /// Processes inside use it.
    Busy,
    /// The instance has ended.
    Ended,
}
