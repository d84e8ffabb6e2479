//! The images that are written down: small files that name layers. An image counts only while all its layers are there, and those
//! that were used least recently are forgotten when there are many.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::SystemTime;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};
use serde::{Deserialize, Serialize};
use tarn_link::Image;

use super::{Images, Pins};
use crate::local::files;
use crate::local::images::names;

/// No file about a layer or an image is longer.
const MAX_FILE: u64 = 8 << 20;

/// So many images are written down, and so many bytes are all of them together.
const MAX_IMAGES: usize = 10_000;
const MAX_BYTES: u64 = 256 << 20;

/// An image that is on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::local) struct Stored {
    /// The digest of its manifest.
    pub(in crate::local::images) digest: String,
    /// Its layers by their digests, lowest first.
    pub(in crate::local) layers: Vec<String>,
    /// How its programs are run.
    pub(in crate::local) image: Image,
}

impl Images {
    /// An image that is there with all its layers, which stay for as long as the pins do.
    pub(in crate::local::images) fn find(&self, digest: &str) -> Option<(Stored, Pins<'_>)> {
        let path = self.name(digest);
        let (stored, _) = load::<Stored>(&path).ok()?;
        touch(&path);
        let pins = self.pin(stored.layers.clone());
        let all = stored.layers.iter().all(|layer| self.use_layer(layer).is_some());
        all.then_some((stored, pins))
    }

    /// Writes down an image whose layers are all there, also under the name of the index that leads to it.
    pub(in crate::local::images) fn store(&self, stored: &Stored, also: Option<&str>) -> io::Result<()> {
        // Two that write down the same image would be in each other's way, and so would be whoever clears up.
        let _one_at_a_time = self.naming.lock().unwrap_or_else(PoisonError::into_inner);
        for digest in [Some(stored.digest.as_str()), also].into_iter().flatten() {
            files::write_durably(&self.name(digest), &serde_json::to_vec(stored)?, 0o600)?;
        }
        self.trim(MAX_IMAGES, MAX_BYTES)
    }

    /// Forgets images that have lost a layer, and what was half written when an engine died.
    pub(super) fn forget_incomplete(&self) -> io::Result<()> {
        let _one_at_a_time = self.naming.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in fs::read_dir(self.names())? {
            let path = entry?.path();
            let is_name = path.file_name().and_then(|name| name.to_str()).is_some_and(names::is_hex);
            // One that cannot be read can be fetched again.
            let stored = load::<Stored>(&path).ok().filter(|_| is_name);
            if !stored.is_some_and(|(stored, _)| self.have(&stored.layers)) {
                files::gone(fs::remove_file(path))?;
            }
        }
        Ok(())
    }

    /// Forgets those that were used least recently, until there are only so many.
    fn trim(&self, most: usize, most_bytes: u64) -> io::Result<()> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.names())? {
            let entry = entry?;
            let about = entry.metadata()?;
            found.push((about.modified()?, about.len(), entry.path()));
        }
        found.sort_by(|one, other| other.cmp(one));
        let mut bytes = 0;
        for (number, (_, length, path)) in found.into_iter().enumerate() {
            bytes += length;
            if number >= most || bytes > most_bytes {
                files::gone(fs::remove_file(path))?;
            }
        }
        Ok(())
    }

    fn name(&self, digest: &str) -> PathBuf {
        self.names().join(digest)
    }

    fn names(&self) -> PathBuf {
        self.directory.join("names")
    }
}

/// What a file says, and when it was used.
pub(in crate::local::images) fn load<T: for<'a> Deserialize<'a>>(path: &Path) -> io::Result<(T, SystemTime)> {
    let found = fs::metadata(path)?;
    if found.len() > MAX_FILE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long"));
    }
    Ok((serde_json::from_slice(&fs::read(path)?)?, found.modified()?))
}

/// Notes that a file is used now. Without it the order is a little wrong.
pub(super) fn touch(path: &Path) {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    let _unordered = utimensat(CWD, path, &times, AtFlags::empty());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;
    use crate::local::images::ImageSettings;

    #[test]
    fn images_are_forgotten_when_there_are_many_and_what_is_half_written_goes() {
        let directory = tempfile::tempdir().unwrap();
        let (images, _) =
            Images::open(directory.path().to_owned(), ImageSettings::default(), &BTreeSet::new()).unwrap();
        let digest = |n: u64| format!("{n:064x}");
        for n in 1..=4 {
            let stored = Stored { digest: digest(n), layers: Vec::new(), image: Image::default() };
            images.store(&stored, None).unwrap();
            let file = fs::File::options().write(true).open(images.name(&digest(n))).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(n)).unwrap();
        }
        assert!(images.find(&digest(1)).is_some(), "it is used now");
        images.trim(2, u64::MAX).unwrap();
        let there = |n| images.name(&digest(n)).exists();
        assert_eq!([1, 2, 3, 4].map(there), [true, false, false, true]);
        let length = fs::metadata(images.name(&digest(1))).unwrap().len();
        images.trim(2, length).unwrap();
        assert_eq!([1, 4].map(there), [true, false]);
        fs::copy(images.name(&digest(1)), images.name(&format!("{}.new", digest(1)))).unwrap();
        images.forget_incomplete().unwrap();
        assert_eq!(fs::read_dir(images.names()).unwrap().count(), 1);
    }
}
