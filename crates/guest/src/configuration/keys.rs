//! Whether a key may log in: the engine gave it, it is the peers', or the user wrote it into his own file.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::State;
use super::files::{open_directory, read};
use crate::accounts::Account;

/// Whether a key, written as OpenSSH writes it, opens the instance.
pub(crate) fn opens(state: &State, account: Option<&Account>, key: &str) -> bool {
    let Some(wanted) = kind_and_blob(key) else { return false };
    let configuration = &state.configuration;
    let mut given = configuration.public_keys.iter().chain([&configuration.peer_public_key]);
    given.any(|line| kind_and_blob(line) == Some(wanted))
        || account.is_some_and(|account| own_keys(account).lines().any(|line| kind_and_blob(line) == Some(wanted)))
}

/// The kind of a key and the key itself. A line that begins with options (`command=`, `from=`, `restrict`) has no kind in
/// the first place and is never accepted: the guest would not keep to them.
fn kind_and_blob(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    let (kind, blob) = (words.next()?, words.next()?);
    let is_kind = ["ssh-", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-sha2-"].iter().any(|prefix| kind.starts_with(prefix));
    (is_kind && !kind.contains(['=', ',', '"'])).then_some((kind, blob))
}

/// The user's own file, if only he or root can have written it.
fn own_keys(account: &Account) -> String {
    read_own_keys(account).unwrap_or_default()
}

fn read_own_keys(account: &Account) -> Option<String> {
    let home = File::from(open_directory(Path::new(&account.home)).ok()?);
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = File::from(rustix::fs::openat(&home, ".ssh", flags, Mode::empty()).ok()?);
    let (file, text) = read(&directory, "authorized_keys").ok()??;
    let is_safe = [&home, &directory, &file].into_iter().all(|file| {
        let others_may_write = 0o022;
        file.metadata().is_ok_and(|m| (m.uid() == account.uid || m.uid() == 0) && m.mode() & others_may_write == 0)
    });
    is_safe.then(|| String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_never_accepted() {
        assert_eq!(kind_and_blob("ssh-ed25519 AAAA me@home"), Some(("ssh-ed25519", "AAAA")));
        assert_eq!(kind_and_blob("  ssh-rsa   BBBB"), Some(("ssh-rsa", "BBBB")));
        for line in ["", "# ssh-rsa AAAA", "restrict ssh-rsa AAAA", "command=\"x\" ssh-rsa AAAA", "ssh-rsa", "from=a b"]
        {
            assert_eq!(kind_and_blob(line), None, "{line}");
        }
    }
}
