//! What a guest is told when it begins, so that tests can run it in a directory of their own and as themselves.

use std::path::PathBuf;

use tarn_link::Image;

/// Where a guest finds its things.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directory that stands for `/`: configuration is read and written below it.
    pub root: PathBuf,
    /// The login name of the one user that sessions run as, unless an image says who does.
    pub user: String,
    /// What the container image says, if the instance is of one.
    pub image: Option<Image>,
    /// This program, run again for what must happen with the user's rights (`sftp-server`, `open-socket`).
    pub helper: PathBuf,
    /// Whether this process is the init of the instance and collects every orphan. If not, it collects only the children
    /// that it started itself.
    pub is_init: bool,
}

impl Settings {
    /// What holds inside an instance.
    pub fn instance(is_init: bool) -> Self {
        Settings { root: "/".into(), user: "ubuntu".into(), image: None, helper: "/proc/self/exe".into(), is_init }
    }
}
