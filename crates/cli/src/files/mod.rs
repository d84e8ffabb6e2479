//! Files of the user: read up to a size limit, and replaced atomically, so that a reader sees the old or the new
//! content.

pub(crate) mod ini_sections;
pub(crate) mod paths;
pub(crate) mod public_keys;

use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use crate::failure::{Failure, Result};

/// The maximum size of a file that is read.
const MAX_LENGTH: u64 = 4 << 20;

/// Reads a text file.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    let mut text = String::new();
    let failed = |e: std::io::Error| Failure::with_cause(format_args!("cannot read {}", path.display()), e);
    File::open(path).and_then(|file| file.take(MAX_LENGTH + 1).read_to_string(&mut text)).map_err(failed)?;
    if text.len() as u64 > MAX_LENGTH {
        Err(Failure::usage(format!("{} is too large", path.display())))
    } else {
        Ok(text)
    }
}

/// Reads a text file; an empty text if it does not exist.
pub(crate) fn read_if_exists(path: &Path) -> Result<String> {
    match path.symlink_metadata() {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(String::new()),
        _ => read_text(path),
    }
}

/// Replaces a file and makes it readable for its owner only. The target of a symbolic link is replaced, not the link.
pub(crate) fn replace_file(path: &Path, text: &str) -> Result<()> {
    write_atomically(path, text).map_err(|e| Failure::with_cause(format_args!("cannot write {}", path.display()), e))
}

fn write_atomically(path: &Path, text: &str) -> std::io::Result<()> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let new = path.with_extension(format!("new-{}", std::process::id()));
    tarn_base::files::replace_file(&path, &new, text.as_bytes(), 0o600)
}
