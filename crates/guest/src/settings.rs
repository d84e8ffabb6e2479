//! The settings of a guest, so that tests can run it in their own directory and as their own user.

use std::path::PathBuf;

use tarn_link::Image;

/// The settings of a guest.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directory to use as `/`: configuration is read and written below it.
    pub root: PathBuf,
    /// The login name of the user that sessions run as, unless an image names another.
    pub user: String,
    /// The settings of the container image, if the instance has one.
    pub image: Option<Image>,
    /// This program, run again for tasks that need the user's rights (`sftp-server`, `open-socket`).
    pub helper: PathBuf,
    /// Whether this process is the init of the instance and reaps every orphan. If not, it reaps only its own children.
    pub is_init: bool,
}

impl Settings {
    /// Returns the settings inside an instance.
    pub fn instance(is_init: bool) -> Self {
        Settings { root: "/".into(), user: "ubuntu".into(), image: None, helper: "/proc/self/exe".into(), is_init }
    }
}
