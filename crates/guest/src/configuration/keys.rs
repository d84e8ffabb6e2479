//! Decides whether a key may log in: it comes from the engine, it is the peer key, or the user authorized it.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::State;
use crate::filesystem::{open_directory, read_file};
use crate::users::Account;

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
