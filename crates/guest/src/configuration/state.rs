//! What a guest remembers: its configuration, and a host key of its own for the time before it got one.

use std::io;
use std::path::Path;

use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, PrivateKey};
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};
use tarn_link::{Configuration, Image};

use super::files::{Owner, open_directory, own_directory, read, replace, system_directory};
use super::links::Link;

const FILE: &str = "guest.json";

/// What the container image says, for `sudo`, which trusts nothing that its caller could have written.
const IMAGE: &str = "image.json";

/// What is remembered.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct State {
    pub(super) configuration: Configuration,
    /// The links in the home directory that may be ours.
    #[serde(default)]
    pub(super) links: Vec<Link>,
    own_host_key: String,
}

/// Secrets stay out of logs.
impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("configuration", &self.configuration).finish_non_exhaustive()
    }
}

impl State {
    /// Reads the state; a guest that has none, or cannot read it, begins with a host key of its own.
    pub(crate) fn load(root: &Path) -> io::Result<Self> {
        let directory = directory(root)?;
        let known = read(&directory, FILE)?.and_then(|(_, text)| serde_json::from_slice::<State>(&text).ok());
        let mut state = known.unwrap_or_default();
        if state.own_host_key.is_empty() {
            let key = PrivateKey::random(&mut russh::keys::key::safe_rng(), Algorithm::Ed25519);
            let key = key.and_then(|key| key.to_openssh(LineEnding::LF)).map_err(io::Error::other)?;
            key.as_str().clone_into(&mut state.own_host_key);
            state.save(root)?;
        }
        Ok(state)
    }

    /// Writes the state.
    pub(super) fn save(&self, root: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        replace(directory(root)?, FILE, &text, Owner { account: None, mode: Mode::RUSR | Mode::WUSR })
    }

    /// The private host key in use.
    pub(crate) fn host_key(&self) -> &str {
        let given = &self.configuration.host_key;
        if given.is_empty() { &self.own_host_key } else { given }
    }
}

/// Remembers what the container image says.
pub(crate) fn remember_image(root: &Path, image: &Image) -> io::Result<()> {
    let text = serde_json::to_vec(image).map_err(io::Error::other)?;
    replace(directory(root)?, IMAGE, &text, Owner { account: None, mode: Mode::RUSR | Mode::WUSR })
}

/// What the container image of this instance says, if it is of one. Nothing is made or changed by asking.
pub(crate) fn image(root: &Path) -> Option<Image> {
    let directory = open_directory(&root.join("var/lib/tarn")).ok()?;
    let (_, text) = read(directory, IMAGE).ok()??;
    serde_json::from_slice(&text).ok()
}

/// The directory for what only the guest may read.
pub(crate) fn directory(root: &Path) -> io::Result<std::os::fd::OwnedFd> {
    own_directory(system_directory(root, "var/lib")?, "tarn")
}
