//! What the local driver has to be told.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use tarn_model::capacity::Inventory;

use crate::gpus::{Watch, cdi};
use crate::local::images::ImageSettings;
use crate::local::network::Subnet;
use crate::local::protections::Protections;

/// What the local driver has to be told. It asks the environment for nothing.
#[derive(Clone, Debug)]
pub struct LocalSettings {
    /// Where instances keep their disks, and images are kept: on a disk, for long.
    pub data: PathBuf,
    /// Where volumes are kept; a disk of their own is a good place.
    pub pool: PathBuf,
    /// Where sockets and mount points are while instances run: gone after a restart of the machine, and every directory on
    /// the way there may be entered by everybody.
    pub run: PathBuf,
    /// The program of the helper process and its first arguments.
    pub helper: Vec<OsString>,
    /// The static binary that is the first process of every instance.
    pub guest: &'static [u8],
    /// How large the disk of a new instance is; what fits when absent.
    pub disk_bytes: Option<u64>,
    /// What instances are kept in by.
    pub protections: Protections,
    /// Networks that instances may not reach.
    pub denied: Vec<Subnet>,
    /// Container images: how much may be kept of them, and the registries they come from.
    pub images: ImageSettings,
    /// What there is to give; of its GPUs the watch knows better.
    pub inventory: Inventory,
    /// Who watches the GPUs.
    pub gpus: Arc<Watch>,
    /// Where the vendors of GPUs say what an instance needs to use one.
    pub cdi: cdi::Directories,
}
