//! The guest: the first process of every instance, which serves the engine, peers and SSH clients.
//!
//! It must work alone: everything it needs is in this program and on the disk of the instance, and the engine may be
//! away for any length of time. It knows the protocol (`link`) and the SSH server (`ssh`), and nothing of clusters,
//! prices or databases. Everything that arrives over a stream is bounded, and everything that is done for a user is
//! done with the rights of that user.
//!
//! Start reading at [`Guest::serve_stream`] in `link_service`: one stream with one purpose. `session` runs programs,
//! `jobs` runs commands without a connected client, `configuration` stores keys and names, `users` finds the accounts
//! of the instance and the user of a container image, `ssh_server` is the SSH server of the instance, `process` starts
//! and reaps processes, and `filesystem` reads and writes files safely. `sftp` and `sudo` are separate programs in the
//! same binary, and `init` is what only the first process does. `main.rs` connects them.

mod configuration;
mod filesystem;
pub mod init;
pub mod jobs;
mod link_service;
pub mod process;
mod session;
pub mod sftp;
pub mod ssh_server;
pub mod sudo;
mod users;

use std::path::PathBuf;

use tarn_link::Image;

pub use link_service::Guest;
pub use process::Children;
pub use users::{Account, Accounts, find_session_account};

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
