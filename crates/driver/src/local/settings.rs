//! What the local driver has to be told.

use std::ffi::OsString;
use std::path::PathBuf;

use tarn_model::capacity::Inventory;

use super::images::ImageSettings;

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
    /// Container images: how much may be kept of them, and the registries they come from.
    pub images: ImageSettings,
    /// What there is to give.
    pub inventory: Inventory,
}
