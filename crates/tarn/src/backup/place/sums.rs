//! Files with their checksums: copied, hashed and compared.

use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};

/// The bytes read at a time.
const STEP_BYTES: usize = 1 << 20;

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::backup) struct FileSum {
    /// The name in the directory of the backup.
    pub(in crate::backup) name: String,
    pub(in crate::backup) bytes: u64,
    pub(in crate::backup) blake3: String,
}

impl FileSum {
    /// Reads a file of a directory.
    pub(in crate::backup) fn of(directory: &Path, name: &str) -> io::Result<FileSum> {
        let mut hasher = blake3::Hasher::new();
        let bytes = read_all(&directory.join(name), |bytes| {
            hasher.update(bytes);
        })?;
        Ok(FileSum { name: name.to_owned(), bytes, blake3: hasher.finalize().to_hex().to_string() })
    }

    /// Returns what is wrong with a file that should be this one, if anything is.
    pub(in crate::backup) fn fault(&self, found: io::Result<FileSum>) -> Option<String> {
        match found {
            Ok(found) if found == *self => None,
            Ok(found) if found.bytes != self.bytes => {
                Some(format!("{} has {} bytes instead of {}", self.name, found.bytes, self.bytes))
            }
            Ok(_) => Some(format!("{} was changed", self.name)),
            Err(error) => Some(format!("{} cannot be read: {error}", self.name)),
        }
    }
}

/// Returns the size and the MD5 of a file.
pub(in crate::backup) fn md5_of(path: &Path) -> io::Result<(u64, String)> {
    let mut md5 = Md5::new();
    let bytes = read_all(path, |bytes| md5.update(bytes))?;
    Ok((bytes, hex::encode(md5.finalize())))
}

/// Copies a file to a new one, which only its owner can read, and syncs it. Returns the size and the MD5 of what was
/// copied.
pub(in crate::backup) fn copy_with_md5(from: &Path, to: &Path) -> io::Result<(u64, String)> {
    // A source that does not exist leaves no target.
    drop(File::open(from)?);
    let mut target = File::options().write(true).create_new(true).mode(0o600).open(to)?;
    let (mut md5, mut written) = (Md5::new(), Ok(()));
    let bytes = read_all(from, |bytes| {
        md5.update(bytes);
        if written.is_ok() {
            written = target.write_all(bytes);
        }
    })?;
    written?;
    target.sync_data()?;
    Ok((bytes, hex::encode(md5.finalize())))
}

/// Syncs a file, and closes it to other users.
pub(in crate::backup) fn seal_file(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.sync_all()
}

fn read_all(path: &Path, mut each: impl FnMut(&[u8])) -> io::Result<u64> {
    let (mut file, mut buffer, mut bytes) = (File::open(path)?, vec![0; STEP_BYTES], 0);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(read) => {
                each(&buffer[..read]);
                bytes += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
