//! Copies public files of the host.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use crate::local::host::files;

/// The maximum size of a copied file.
const MAX_FILE: u64 = 64 << 20;

/// The maximum depth of a copied tree.
const MAX_DEPTH: u32 = 24;

/// The mode bit of files that all users may read.
const PUBLIC: u32 = 0o004;

/// Names that are never copied, in case they are public by mistake.
const PRIVATE_NAMES: &[&str] = &["auth.conf", "auth.conf.d", "private", "passwords.dat", "credentials"];

/// Copies a file, a link or a whole tree if it exists and is public; `root` owns everything in the copy.
pub(super) fn copy_public(from: &Path, to: &Path) -> io::Result<()> {
    copy_tree(from, to, MAX_DEPTH)
}

fn copy_tree(from: &Path, to: &Path, depth: u32) -> io::Result<()> {
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
            copy_tree(&entry.path(), &to.join(entry.file_name()), depth - 1)?;
        }
    } else if found.is_file() && found.size() <= MAX_FILE {
        fs::copy(from, to)?;
        fs::set_permissions(to, fs::Permissions::from_mode(found.mode() & 0o755))?;
    }
    Ok(())
}

/// Copies a text file, or a directory of them, leaving out files that seem to contain a secret.
pub(super) fn copy_without_secrets(from: &Path, to: &Path) -> io::Result<()> {
    let Ok(found) = fs::metadata(from) else { return Ok(()) };
    if found.is_dir() {
        files::ensure_directory(to, 0o755)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                copy_without_secrets(&entry.path(), &to.join(entry.file_name()))?;
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

/// Returns whether a configuration seems to contain a password: by a keyword, or in a URL.
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
    fn private_files_are_not_copied() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (from, to) = (from.path().join("a"), to.path().join("a"));
        fs::create_dir_all(from.join("private")).unwrap();
        for (name, mode) in [("open", 0o644), ("closed", 0o640), ("private/key", 0o644), ("auth.conf", 0o644)] {
            fs::write(from.join(name), name).unwrap();
            fs::set_permissions(from.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink("open", from.join("link")).unwrap();
        copy_public(&from, &to).unwrap();
        let mut copied: Vec<_> = fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        copied.sort();
        assert_eq!(copied, ["link", "open"]);
    }

    #[test]
    fn passwords_are_recognised() {
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
