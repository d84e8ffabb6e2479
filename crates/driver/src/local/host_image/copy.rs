//! Copies of what is public on the machine.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use crate::local::files;

/// No file that belongs into an image is larger.
const MAX_FILE: u64 = 64 << 20;

/// No tree that belongs into an image is deeper.
const MAX_DEPTH: u32 = 24;

/// Whether everybody on the machine may read it.
const PUBLIC: u32 = 0o004;

/// The names that are left out wherever they are: what is public by mistake must not be passed on.
const PRIVATE_NAMES: &[&str] = &["auth.conf", "auth.conf.d", "private", "passwords.dat", "credentials"];

/// Copies a file, a link or a whole tree if it is there and public; everything is `root`'s in the copy.
pub(super) fn public(from: &Path, to: &Path) -> io::Result<()> {
    tree(from, to, MAX_DEPTH)
}

fn tree(from: &Path, to: &Path, depth: u32) -> io::Result<()> {
    let found = match fs::symlink_metadata(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    let private = from.file_name().is_none_or(|name| PRIVATE_NAMES.iter().any(|private| name == *private));
    if private || depth == 0 {
        return Ok(());
    }
    if found.is_symlink() {
        return symlink(fs::read_link(from)?, to);
    }
    if found.mode() & PUBLIC == 0 {
        return Ok(());
    }
    if found.is_dir() {
        files::ensure_directory(to, found.mode() & 0o755)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            tree(&entry.path(), &to.join(entry.file_name()), depth - 1)?;
        }
    } else if found.is_file() && found.size() <= MAX_FILE {
        fs::copy(from, to)?;
        fs::set_permissions(to, fs::Permissions::from_mode(found.mode() & 0o755))?;
    }
    Ok(())
}

/// Copies a text, or a directory of texts, leaving out every one that seems to hold a secret.
pub(super) fn without_secrets(from: &Path, to: &Path) -> io::Result<()> {
    let Ok(found) = fs::metadata(from) else { return Ok(()) };
    if found.is_dir() {
        files::ensure_directory(to, 0o755)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                without_secrets(&entry.path(), &to.join(entry.file_name()))?;
            }
        }
        return Ok(());
    }
    if !found.is_file() || found.mode() & PUBLIC == 0 || found.size() > MAX_FILE {
        return Ok(());
    }
    let text = fs::read(from)?;
    if seems_secret(&String::from_utf8_lossy(&text)) { Ok(()) } else { fs::write(to, text) }
}

/// Whether a configuration holds a password: by name, or in front of the host of an address.
fn seems_secret(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let named = ["password", "passwd", "token", "secret", "_auth"].iter().any(|word| text.contains(word));
    let in_address = text.split("://").skip(1).any(|rest| {
        let host = rest.split(['/', ' ', '\n', '\t', '"', '\'']).next().unwrap_or_default();
        host.contains('@')
    });
    named || in_address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_public_is_left_out() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (from, to) = (from.path().join("a"), to.path().join("a"));
        fs::create_dir_all(from.join("private")).unwrap();
        for (name, mode) in [("open", 0o644), ("closed", 0o640), ("private/key", 0o644), ("auth.conf", 0o644)] {
            fs::write(from.join(name), name).unwrap();
            fs::set_permissions(from.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink("open", from.join("link")).unwrap();
        public(&from, &to).unwrap();
        let mut copied: Vec<_> = fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        copied.sort();
        assert_eq!(copied, ["link", "open"]);
    }

    #[test]
    fn passwords_are_noticed() {
        for secret in
            ["index-url = https://me:pw@host/simple", "Acquire::http::Proxy \"http://u:p@proxy:3128\";", "token=1"]
        {
            assert!(seems_secret(secret), "{secret}");
        }
        for public in
            ["index-url = https://host/simple", "deb http://mirror.example.org/debian bookworm main # me@host"]
        {
            assert!(!seems_secret(public), "{public}");
        }
    }
}
