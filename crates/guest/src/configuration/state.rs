//! What a guest stores: its configuration, and its own host key for the time before it is configured.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, PrivateKey};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use tarn_link::{Configuration, Image};

use super::apply::Link;
use crate::filesystem::{
    Owner, open_directory, open_private_directory, open_system_directory, read_file, replace_file,
};
use crate::users::Account;

const STATE_FILE: &str = "guest.json";

/// The settings of the container image, for `sudo`, which trusts nothing that its caller could have written.
const IMAGE_FILE: &str = "image.json";

/// The stored state.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct State {
    pub(super) configuration: Configuration,
    /// The links in the home directory that may be ours.
    #[serde(default)]
    pub(super) links: Vec<Link>,
    own_host_key: String,
}

/// Keeps secrets out of logs.
impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("configuration", &self.configuration).finish_non_exhaustive()
    }
}

impl State {
    /// Reads the state. A missing or unreadable state is replaced by one with a new host key.
    pub(crate) fn load(root: &Path) -> io::Result<Self> {
        let directory = open_state_directory(root)?;
        let known =
            read_file(&directory, STATE_FILE)?.and_then(|(_, text)| serde_json::from_slice::<State>(&text).ok());
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
        replace_file(
            open_state_directory(root)?,
            STATE_FILE,
            &text,
            Owner { account: None, mode: Mode::RUSR | Mode::WUSR },
        )
    }

    /// Returns the private host key in use.
    pub(crate) fn host_key(&self) -> &str {
        let given = &self.configuration.host_key;
        if given.is_empty() { &self.own_host_key } else { given }
    }
}

/// Saves the settings of the container image.
pub(crate) fn save_image(root: &Path, image: &Image) -> io::Result<()> {
    let text = serde_json::to_vec(image).map_err(io::Error::other)?;
    replace_file(open_state_directory(root)?, IMAGE_FILE, &text, Owner { account: None, mode: Mode::RUSR | Mode::WUSR })
}

/// Reads the settings of the container image, if the instance has one. Creates and changes nothing.
pub(crate) fn load_image(root: &Path) -> Option<Image> {
    let directory = open_directory(&root.join("var/lib/tarn")).ok()?;
    let (_, text) = read_file(directory, IMAGE_FILE).ok()??;
    serde_json::from_slice(&text).ok()
}

/// Opens the directory that only the guest may read.
pub(crate) fn open_state_directory(root: &Path) -> io::Result<std::os::fd::OwnedFd> {
    open_private_directory(open_system_directory(root, "var/lib")?, "tarn")
}

/// Returns whether a key, in OpenSSH format, may log in.
pub(crate) fn is_key_authorized(state: &State, account: Option<&Account>, key: &str) -> bool {
    let Some(wanted) = kind_and_blob(key) else { return false };
    let configuration = &state.configuration;
    let mut given = configuration.public_keys.iter().chain([&configuration.peer_public_key]);
    given.any(|line| kind_and_blob(line) == Some(wanted))
        || account.is_some_and(|account| {
            user_authorized_keys(account).lines().any(|line| kind_and_blob(line) == Some(wanted))
        })
}

/// Returns the kind and the base64 of a key. A line that starts with options (`command=`, `from=`, `restrict`) is never
/// accepted, because the guest would not enforce them.
fn kind_and_blob(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    let (kind, blob) = (words.next()?, words.next()?);
    let is_kind = ["ssh-", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-sha2-"].iter().any(|prefix| kind.starts_with(prefix));
    (is_kind && !kind.contains(['=', ',', '"'])).then_some((kind, blob))
}

/// Returns the user's `authorized_keys`, if only the user or root can have written it.
fn user_authorized_keys(account: &Account) -> String {
    read_user_authorized_keys(account).unwrap_or_default()
}

fn read_user_authorized_keys(account: &Account) -> Option<String> {
    let home = File::from(open_directory(Path::new(&account.home)).ok()?);
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = File::from(rustix::fs::openat(&home, ".ssh", flags, Mode::empty()).ok()?);
    let (file, text) = read_file(&directory, "authorized_keys").ok()??;
    let is_safe = [&home, &directory, &file].into_iter().all(|file| {
        let others_may_write = 0o022;
        file.metadata().is_ok_and(|m| (m.uid() == account.uid || m.uid() == 0) && m.mode() & others_may_write == 0)
    });
    is_safe.then(|| String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key line with options is never accepted.
    #[test]
    fn keys_with_options_are_ignored() {
        assert_eq!(kind_and_blob("ssh-ed25519 AAAA me@home"), Some(("ssh-ed25519", "AAAA")));
        assert_eq!(kind_and_blob("  ssh-rsa   BBBB"), Some(("ssh-rsa", "BBBB")));
        for line in ["", "# ssh-rsa AAAA", "restrict ssh-rsa AAAA", "command=\"x\" ssh-rsa AAAA", "ssh-rsa", "from=a b"]
        {
            assert_eq!(kind_and_blob(line), None, "{line}");
        }
    }
}
