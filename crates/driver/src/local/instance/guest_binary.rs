//! The guest binary on disk, from where it is mounted into every instance.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::local::host::files;

/// Decompresses the guest and writes it under a name derived from its content. Older ones are removed: instances that
/// run them keep them open.
pub(in crate::local) fn install_guest_binary(guests: &Path, compressed: &[u8]) -> io::Result<PathBuf> {
    files::ensure_directory(guests, 0o755)?;
    let name = format!("tarn-guest-{}", &blake3::hash(compressed).to_hex()[..16]);
    let path = guests.join(&name);
    // A host that lost power may have kept the name of a file without all of its content.
    let size = zstd::zstd_safe::get_frame_content_size(compressed).ok().flatten();
    if fs::metadata(&path).ok().map(|found| found.len()) != size {
        files::write_durably(&path, &zstd::decode_all(compressed)?, 0o555)?;
    }
    for entry in fs::read_dir(guests)? {
        let entry = entry?;
        if entry.file_name() != *name {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(path)
}
