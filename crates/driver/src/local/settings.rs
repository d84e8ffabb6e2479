//! The settings of the local driver.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use tarn_model::capacity::Inventory;

use crate::gpus::{Watch, cdi};
use crate::local::images::ImageSettings;
use crate::local::network::Policy;
use crate::local::protections::Protections;

/// The settings of the local driver. It reads nothing from the environment.
#[derive(Clone, Debug)]
pub struct LocalSettings {
    /// Where the disks of instances and the images are kept; on persistent storage.
    pub data: PathBuf,
    /// Where volumes are kept, preferably on a disk of their own.
    pub pool: PathBuf,
    /// Where sockets and mount points live while instances run. It must not survive a reboot of the host, and every
    /// directory on its path must be accessible to all users.
    pub run: PathBuf,
    /// The program of the helper process and its first arguments.
    pub helper: Vec<OsString>,
    /// The static binary that is the first process of every instance.
    pub guest: &'static [u8],
    /// The size of the disk of a new instance; chosen from the size of the host's disk when absent.
    pub disk_bytes: Option<u64>,
    /// The protections around instances; all of them except in tests.
    pub protections: Protections,
    /// Where lxcfs is mounted, if it is; `None` if instances are to see the whole host in any case.
    pub lxcfs: Option<PathBuf>,
    /// Which other networks instances may reach.
    pub policy: Policy,
    /// Container images: how much of them may be cached, and their registries.
    pub images: ImageSettings,
    /// What the host has to offer. Its GPUs come from the watch instead.
    pub inventory: Inventory,
    /// The watch over the GPUs.
    pub gpus: Arc<Watch>,
    /// Where the vendors of GPUs describe what an instance needs to use one.
    pub cdi: cdi::Directories,
}
