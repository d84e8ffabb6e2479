//! Reading files that somebody inside may have made long, or endless.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Reads the first bytes of an ordinary file, at most so many. Anything else is an error, and nothing is waited for.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other(format!("{} is not an ordinary file", path.display())));
    }
    let mut contents = Vec::new();
    file.take(most).read_to_end(&mut contents)?;
    Ok(contents)
}
