//! Files of the user's: read within limits, and replaced in one go, so that whoever reads one meanwhile sees the old or the new.

use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::failure::{Failure, Result};

/// The longest file that is read.
const MAX_LENGTH: u64 = 4 << 20;

/// The text of a file.
pub(crate) fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    let failed = |e: std::io::Error| Failure::doing(format_args!("{} cannot be read", path.display()), e);
    File::open(path).and_then(|file| file.take(MAX_LENGTH + 1).read_to_string(&mut text)).map_err(failed)?;
    match text.len() as u64 > MAX_LENGTH {
        true => Err(Failure::usage(format!("{} is too long", path.display()))),
        false => Ok(text),
    }
}

/// The same; nothing if there is none.
pub(crate) fn read_if_there(path: &Path) -> Result<String> {
    match path.symlink_metadata() {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(String::new()),
        _ => read(path),
    }
}

/// Replaces a file, which only its owner can read then. What a link leads to is replaced, not the link.
pub(crate) fn replace(path: &Path, text: &str) -> Result<()> {
    write(path, text).map_err(|e| Failure::doing(format_args!("{} cannot be written", path.display()), e))
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let options = File::options().write(true).create_new(true).mode(0o600).open(&new);
    let written = options.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &path)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written
}
