//! The guest binary on disk, from where it is mounted into every instance.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::local::host::files;

/// Writes the binary under a name derived from its content. Older ones are removed: instances that run them keep them
/// open.
pub(in crate::local) fn install_guest_binary(guests: &Path, binary: &[u8]) -> io::Result<PathBuf> {
    files::ensure_directory(guests, 0o755)?;
    let name = format!("tarn-guest-{}", &blake3::hash(binary).to_hex()[..16]);
    let path = guests.join(&name);
    if fs::metadata(&path).map_or(0, |found| found.len()) != binary.len() as u64 {
        files::write_durably(&path, binary, 0o555)?;
    }
    for entry in fs::read_dir(guests)? {
        let entry = entry?;
        if entry.file_name() != *name {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(path)
}
