//! The stored images: small files that list layers. An image is valid only while all its layers are cached. The least
//! recently used ones are removed when there are too many.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};
use serde::{Deserialize, Serialize};
use tarn_link::Image;

use super::{Images, Pins};
use crate::local::host::files;
use crate::local::images;

/// The maximum size of a metadata file.
const MAX_FILE: u64 = 8 << 20;

/// The maximum number of stored images, and of bytes in all their files.
const MAX_IMAGES: usize = 10_000;
const MAX_BYTES: u64 = 256 << 20;

/// An image in the cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::local) struct StoredImage {
    /// The digest of its manifest.
    pub(in crate::local::images) digest: String,
    /// The digests of its layers, lowest first.
    pub(in crate::local) layers: Vec<String>,
    /// How its programs are run.
    pub(in crate::local) image: Image,
}

impl Images {
    /// Returns an image whose layers are all cached, pinned for as long as the pins live.
    pub(in crate::local::images) fn find_stored_image(&self, digest: &str) -> Option<(StoredImage, Pins<'_>)> {
        let path = self.stored_image_path(digest);
        let (stored, _) = load_json_file::<StoredImage>(&path).ok()?;
        touch_file(&path);
        let pins = self.pin_layers(stored.layers.clone());
        let all = stored.layers.iter().all(|layer| self.use_layer(layer).is_some());
        all.then_some((stored, pins))
    }

    /// Stores an image whose layers are all cached, also under the digest of the index that leads to it.
    pub(in crate::local::images) fn store_image(&self, stored: &StoredImage, also: Option<&str>) -> io::Result<()> {
        // Excludes concurrent writers of the same image, and removal.
        let _one_at_a_time = self.naming.lock();
        for digest in [Some(stored.digest.as_str()), also].into_iter().flatten() {
            files::write_durably(&self.stored_image_path(digest), &serde_json::to_vec(stored)?, 0o600)?;
        }
        self.trim_stored_images(MAX_IMAGES, MAX_BYTES)
    }

    /// Removes images that have lost a layer, and files that were being written when an engine died.
    pub(super) fn forget_incomplete_images(&self) -> io::Result<()> {
        let _one_at_a_time = self.naming.lock();
        for entry in fs::read_dir(self.stored_images_directory())? {
            let path = entry?.path();
            let is_name = path.file_name().and_then(|name| name.to_str()).is_some_and(images::is_digest_hex);
            // An unreadable image can be pulled again.
            let stored = load_json_file::<StoredImage>(&path).ok().filter(|_| is_name);
            if !stored.is_some_and(|(stored, _)| self.have(&stored.layers)) {
                files::ignore_missing(fs::remove_file(path))?;
            }
        }
        Ok(())
    }

    /// Removes the least recently used images until the limits hold.
    fn trim_stored_images(&self, most: usize, most_bytes: u64) -> io::Result<()> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.stored_images_directory())? {
            let entry = entry?;
            let about = entry.metadata()?;
            found.push((about.modified()?, about.len(), entry.path()));
        }
        found.sort_by(|one, other| other.cmp(one));
        let mut bytes = 0;
        for (number, (_, length, path)) in found.into_iter().enumerate() {
            bytes += length;
            if number >= most || bytes > most_bytes {
                files::ignore_missing(fs::remove_file(path))?;
            }
        }
        Ok(())
    }

    fn stored_image_path(&self, digest: &str) -> PathBuf {
        self.stored_images_directory().join(digest)
    }

    fn stored_images_directory(&self) -> PathBuf {
        self.directory.join("names")
    }
}

/// Loads a JSON file; also returns when it was last used.
pub(super) fn load_json_file<T: for<'a> Deserialize<'a>>(path: &Path) -> io::Result<(T, SystemTime)> {
    let found = fs::metadata(path)?;
    if found.len() > MAX_FILE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long"));
    }
    Ok((serde_json::from_slice(&fs::read(path)?)?, found.modified()?))
}

/// Marks a file as used now. A failure only makes the eviction order less exact.
pub(super) fn touch_file(path: &Path) {
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

    /// The least recently used images are removed above the limits, and partial files always.
    #[test]
    fn old_and_incomplete_images_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let (images, _) =
            Images::open(directory.path().to_owned(), ImageSettings::default(), &BTreeSet::new()).unwrap();
        let digest = |n: u64| format!("{n:064x}");
        for n in 1..=4 {
            let stored = StoredImage { digest: digest(n), layers: Vec::new(), image: Image::default() };
            images.store_image(&stored, None).unwrap();
            let file = fs::File::options().write(true).open(images.stored_image_path(&digest(n))).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(n)).unwrap();
        }
        assert!(images.find_stored_image(&digest(1)).is_some(), "it is used now");
        images.trim_stored_images(2, u64::MAX).unwrap();
        let there = |n| images.stored_image_path(&digest(n)).exists();
        assert_eq!([1, 2, 3, 4].map(there), [true, false, false, true]);
        let length = fs::metadata(images.stored_image_path(&digest(1))).unwrap().len();
        images.trim_stored_images(2, length).unwrap();
        assert_eq!([1, 4].map(there), [true, false]);
        fs::copy(images.stored_image_path(&digest(1)), images.stored_image_path(&format!("{}.new", digest(1))))
            .unwrap();
        images.forget_incomplete_images().unwrap();
        assert_eq!(fs::read_dir(images.stored_images_directory()).unwrap().count(), 1);
    }
}
