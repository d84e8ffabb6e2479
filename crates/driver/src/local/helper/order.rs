//! What the driver and its helper say to each other: one JSON text per line.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tarn_model::ids::VolumeId;

use crate::gpus::cdi::Edits;
use crate::local::host::loop_device::FileIdentity;
use crate::local::host::processes::Process;
use crate::local::protections::Protections;

/// What the helper is to do; the first line on its input.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::local) enum Order {
    /// To start an instance.
    Start(Box<Start>),
    /// To mount volumes in an instance that exists.
    Mount(Mount),
    /// To unmount one.
    Unmount(Unmount),
    /// To try whether this machine can put a root filesystem together.
    Probe(Probe),
    /// To unpack a layer of an image, whose bytes follow on the same input until it ends.
    Unpack(Unpack),
}

/// Everything the helper has to know to start an instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::local) struct Start {
    /// The instance's id.
    pub(in crate::local) id: String,
    /// Its host name.
    pub(in crate::local) hostname: String,
    /// The image: `root` and, for the image of the machine, `hide` below this directory.
    pub(in crate::local) image: PathBuf,
    /// The container image below it; none for the image of the machine.
    pub(in crate::local) container: Option<Layers>,
    /// The instance's own disk.
    pub(in crate::local) disk: Disk,
    /// The instance's directory for what lives while it runs.
    pub(in crate::local) run: PathBuf,
    /// The guest binary.
    pub(in crate::local) guest: PathBuf,
    /// The first user and group id of the machine that is the instance's; its `root`.
    pub(in crate::local) id_base: u32,
    /// Its control group, from the root of the hierarchy.
    pub(in crate::local) cgroup: String,
    /// The CPUs it may run on.
    pub(in crate::local) cpus: String,
    /// Memory in bytes.
    pub(in crate::local) memory_bytes: u64,
    /// How many processes and threads it may have.
    pub(in crate::local) pids: u64,
    /// What it is kept in by.
    pub(in crate::local) protections: Protections,
    /// The volumes that it will have. They are mounted by an order of their own: what is mounted before an instance has
    /// namespaces of its own is locked there by the kernel, and could not be unmounted while it runs.
    pub(in crate::local) volumes: Vec<VolumeId>,
    /// What it needs to use its GPUs.
    pub(in crate::local) devices: Edits,
}

/// The disk of an instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::local) enum Disk {
    /// A directory.
    Directory(PathBuf),
    /// A filesystem on a device, which stays for as long as somebody has it open: that is the engine's part.
    Device {
        /// The node of the device.
        device: PathBuf,
        /// Its number.
        number: u64,
        /// The file that it has.
        file: FileIdentity,
    },
}

/// A container image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::local) struct Layers {
    /// The trees of its layers, highest first.
    pub(in crate::local) layers: Vec<PathBuf>,
    /// How its programs are run, for the guest.
    pub(in crate::local) image: tarn_link::Image,
}

/// Volumes for an instance. Those that it has already stay as they are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::local) struct Mount {
    /// Its first process.
    pub(in crate::local) process: Process,
    /// The first of its user and group ids.
    pub(in crate::local) id_base: u32,
    /// What to mount.
    pub(in crate::local) volumes: Vec<Volume>,
}

/// A volume and its device, which stays for as long as somebody has it open: that is the engine's part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::local) struct Volume {
    /// Its id.
    pub(in crate::local) id: VolumeId,
    /// The node of its device.
    pub(in crate::local) device: PathBuf,
    /// The number of its device.
    pub(in crate::local) number: u64,
    /// The file that its device has: the number alone is given to another one as soon as the engine is gone.
    pub(in crate::local) file: FileIdentity,
}

/// A volume that an instance shall not have any more.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::local) struct Unmount {
    /// The first process of the instance.
    pub(in crate::local) process: Process,
    /// The volume.
    pub(in crate::local) id: VolumeId,
    /// The number of its device.
    pub(in crate::local) number: u64,
}

/// A try of what a start needs of the kernel, of which nothing is left.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::local) struct Probe {
    /// A directory on the filesystem that is meant.
    pub(in crate::local) directory: PathBuf,
}

/// A layer of an image that is to be unpacked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::local) struct Unpack {
    /// Where to: an empty directory, of which nothing else than its contents is known to whoever unpacks.
    pub(in crate::local) directory: PathBuf,
    /// The first of the ids of the machine that stand for the layer's own while it is unpacked.
    pub(in crate::local) id_base: u32,
    /// So much may lie in it.
    pub(in crate::local) most_bytes: u64,
    /// So many files, directories and links.
    pub(in crate::local) most_entries: u64,
}

/// What was unpacked. A hostile layer may have taken over whoever says it, so none of it is trusted with more than the layer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::local) struct Unpacked {
    /// The SHA-256 of the archive, without its compression, in hexadecimal.
    pub(in crate::local) digest: String,
    /// About as much space as it takes.
    pub(in crate::local) bytes: u64,
    /// How many files, directories and links there are.
    pub(in crate::local) entries: u64,
    /// How many device files were left out.
    pub(in crate::local) devices: u64,
}

/// What the driver answers when the network is there and the process is on record: the instance may begin. Anything else,
/// also the end of the driver, means that it must not.
pub(in crate::local) const BEGIN: &str = "begin";

/// What the helper says: for a start in this order, for everything else only `Done`, or how it failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::local) enum Report {
    /// The namespaces exist; this process keeps them, and the network may be connected to it.
    Namespaces {
        /// The process.
        pid: u32,
    },
    /// The instance is complete and waits to begin.
    Created {
        /// Its first process.
        pid: u32,
    },
    /// It runs.
    Begun,
    /// What was ordered is so.
    Done,
    /// A layer takes so much space by now.
    Grown {
        /// In bytes.
        bytes: u64,
    },
    /// A directory of a layer hides what lower layers have there.
    Opaque {
        /// Where it is in the layer; names are bytes.
        path: Vec<u8>,
    },
    /// The layer is unpacked.
    Unpacked(Unpacked),
    /// The layer cannot be unpacked, however often it is tried.
    Unfit {
        /// Why, in words for the owner.
        reason: String,
    },
    /// The layer is larger, unpacked, than there is room for.
    Full,
    /// A volume is in a state that somebody has to know of; nothing is left half done.
    Refused(Refused),
    /// It did not work; nothing of it is left running.
    Failed {
        /// Why, for the operator.
        reason: String,
    },
}

/// Why a volume could not be mounted or unmounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::local) struct Refused {
    /// The volume.
    pub(in crate::local) volume: VolumeId,
    /// Why.
    pub(in crate::local) why: Why,
}

/// The reasons that are worth their own words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::local) enum Why {
    /// The kernel finds its filesystem damaged.
    Damaged {
        /// What the kernel said, for the operator.
        reason: String,
    },
    /// The kernel cannot read or write it.
    Unreadable {
        /// What the kernel said, for the operator.
        reason: String,
    },
    /// Something is in the way inside, or was moved away while it was mounted.
    Taken {
        /// What, in words for the owner.
        what: String,
    },
    /// Processes inside use it.
    Busy,
    /// The instance has ended.
    Ended,
}
