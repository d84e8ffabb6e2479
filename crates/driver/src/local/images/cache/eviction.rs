//! How much space is available for layers, and which are evicted when there is too little: unused ones, least recently
//! used first.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;

use super::{CacheState, Images};
use crate::local::host::files;

/// The available space, and whether the disk is the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::local::images) struct AvailableSpace {
    pub(in crate::local::images) bytes: u64,
    pub(in crate::local::images) is_disk_bound: bool,
}

/// Whether everything fits.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::local::images) enum FitResult {
    Yes,
    /// Perhaps, once this directory is removed; it is no longer in use.
    AfterRemoving(PathBuf),
    /// The cache is too small: everything in it is needed.
    NotInCache,
    /// The disk is too full.
    NotOnDisk,
}

impl Images {
    /// Returns how much space a new layer may use if everything unused is evicted.
    pub(in crate::local::images) fn available_space(
        &self,
        in_use: impl FnOnce() -> BTreeSet<String>,
    ) -> io::Result<AvailableSpace> {
        let state = self.state();
        // Evaluated under the lock: a start that begins to use a layer releases its pin later, and needs the lock for
        // that.
        let in_use = in_use();
        let needed = |name: &str| state.is_layer_needed(name, &in_use);
        let sum = |is_needed: bool| -> u64 {
            state.layers.iter().filter(|(name, _)| needed(name) == is_needed).map(|(_, known)| known.bytes).sum()
        };
        let growing: u64 = state.growing.values().map(|(_, bytes)| bytes).sum();
        let cache = self.settings.cache_bytes.saturating_sub(sum(true).saturating_add(growing));
        let disk = free_disk_bytes(&self.directory)?.saturating_add(sum(false));
        Ok(AvailableSpace { bytes: cache.min(disk), is_disk_bound: disk < cache })
    }

    /// Returns how much space an image uses besides the layer with this number.
    pub(in crate::local::images) fn bytes_besides_layer(&self, layers: &[String], number: u64) -> u64 {
        let state = self.state();
        let wanted: BTreeSet<_> = layers.iter().collect();
        let there = wanted.iter().filter_map(|layer| state.layers.get(*layer)).map(|known| known.bytes);
        let coming = state.growing.iter().filter(|(other, (layer, _))| **other != number && wanted.contains(layer));
        there.chain(coming.map(|(_, (_, bytes))| *bytes)).sum()
    }

    /// Checks whether everything fits. If not, renames away the least recently used layer that is not needed.
    pub(in crate::local::images) fn evict_one_layer(
        &self,
        in_use: impl FnOnce() -> BTreeSet<String>,
    ) -> io::Result<FitResult> {
        let mut state = self.state();
        let named = state.layers.values().map(|known| known.bytes);
        let total: u64 = named.chain(state.growing.values().map(|(_, bytes)| *bytes)).sum();
        let is_over = total > self.settings.cache_bytes;
        if !is_over && free_disk_bytes(&self.directory)? > 0 {
            return Ok(FitResult::Yes);
        }
        let in_use = in_use();
        let unneeded = state.layers.iter().filter(|(name, _)| !state.is_layer_needed(name, &in_use));
        let Some(oldest) = unneeded.min_by_key(|(_, known)| known.used).map(|(name, _)| name.clone()) else {
            return Ok(if is_over { FitResult::NotInCache } else { FitResult::NotOnDisk });
        };
        // Renamed under the lock, so that no task can begin to use it.
        let (_, evicted_path) = self.unnamed_layer_path();
        fs::rename(self.layer(&oldest), &evicted_path)?;
        state.layers.remove(&oldest);
        tracing::info!(layer = oldest, "a layer was evicted from the image cache");
        Ok(FitResult::AfterRemoving(evicted_path))
    }

    /// Removes an evicted layer, and forgets the images that contain it.
    pub(in crate::local::images) fn remove_evicted_layer(&self, evicted_path: &Path) -> io::Result<()> {
        files::remove_tree(evicted_path)?;
        self.forget_incomplete_images()
    }
}

impl CacheState {
    fn is_layer_needed(&self, layer: &str, in_use: &BTreeSet<String>) -> bool {
        self.pins.contains_key(layer) || in_use.contains(layer)
    }
}

/// The fraction of the disk that layers never use (one twentieth), because the database may be on it, and its upper
/// limit in bytes.
const RESERVED_PART: u64 = 20;
const MOST_RESERVED: u64 = 5_000_000_000;

/// The minimum size that each entry of a layer counts with, so that limiting bytes also limits files.
const FILE: u64 = 4 << 10;

/// Returns how many bytes may still be written to the disk of a directory. Inodes run out like bytes; a filesystem
/// without a fixed number of them reports zero.
pub(super) fn free_disk_bytes(directory: &Path) -> io::Result<u64> {
    let disk = statvfs(directory)?;
    let reserved = (disk.f_blocks.saturating_mul(disk.f_frsize) / RESERVED_PART).min(MOST_RESERVED);
    let bytes = disk.f_bavail.saturating_mul(disk.f_frsize).saturating_sub(reserved);
    if disk.f_files == 0 {
        return Ok(bytes);
    }
    let files = disk.f_favail.saturating_sub(disk.f_files / RESERVED_PART);
    Ok(bytes.min(files.saturating_mul(FILE)))
}

#[cfg(test)]
mod tests {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    use super::super::stored_images::StoredImage;
    use super::super::tests::{add_layer, layer_names, open_cache, test_digest};
    use super::*;

    /// Lets a layer grow; returns whether it fits.
    fn grow(images: &Images, number: u64, bytes: u64, in_use: &BTreeSet<String>) -> FitResult {
        images.record_layer_size(number, &test_digest(99), bytes);
        loop {
            match images.evict_one_layer(|| in_use.clone()).unwrap() {
                FitResult::AfterRemoving(evicted_path) => images.remove_evicted_layer(&evicted_path).unwrap(),
                fits => return fits,
            }
        }
    }

    /// Eviction removes the least recently used layer, and never one that is needed.
    #[test]
    fn eviction_removes_the_least_recently_used_layer() {
        let directory = tempfile::tempdir().unwrap();
        let images = open_cache(directory.path(), 100);
        for n in 1..=3 {
            add_layer(&images, n, 30);
        }
        let stored =
            StoredImage { digest: test_digest(9), layers: vec![test_digest(2)], image: tarn_link::Image::default() };
        images.store_image(&stored, None).unwrap();
        assert!(images.use_layer(&test_digest(1)).is_some());
        add_layer(&images, 4, 30);
        assert_eq!(grow(&images, 99, 0, &BTreeSet::new()), FitResult::Yes);
        assert_eq!(layer_names(directory.path()), [test_digest(1), test_digest(3), test_digest(4)]);
        assert!(
            images.find_stored_image(&test_digest(9)).is_none()
                && !directory.path().join("names").join(test_digest(9)).exists()
        );
        let pins = images.pin_layers(vec![test_digest(3)]);
        let in_use = BTreeSet::from([test_digest(1)]);
        let room = || images.available_space(|| in_use.clone()).unwrap();
        assert_eq!(room(), AvailableSpace { bytes: 40, is_disk_bound: false });
        let (number, place) = images.begin_layer(&test_digest(5)).unwrap();
        assert_eq!(grow(&images, number, 40, &in_use), FitResult::Yes);
        assert_eq!(layer_names(directory.path()).len(), 3, "the fourth had to go");
        assert_eq!(grow(&images, number, 41, &in_use), FitResult::NotInCache, "nothing is left to go");
        images.record_layer_size(number, &test_digest(5), 41);
        assert_eq!(
            images.bytes_besides_layer(&[test_digest(1), test_digest(3), test_digest(5), test_digest(6)], number),
            60
        );
        assert_eq!(images.bytes_besides_layer(&[test_digest(1), test_digest(5)], number + 1), 71);
        images.discard_partial_layer(number, &place).unwrap();
        drop(pins);
        assert_eq!(room().bytes, 70);
    }

    /// A part of the bytes and of the inodes is never reported as free.
    #[test]
    fn part_of_the_disk_is_reserved() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: mounts need root");
            return;
        }
        struct Mounted(tempfile::TempDir);
        impl Drop for Mounted {
            fn drop(&mut self) {
                unmount(self.0.path(), UnmountFlags::DETACH).unwrap();
            }
        }
        let disk = |options: &std::ffi::CStr| {
            let directory = tempfile::tempdir().unwrap();
            mount("test", directory.path(), "tmpfs", MountFlags::empty(), options).unwrap();
            Mounted(directory)
        };
        let (bytes, files) = (disk(c"size=1000k,nr_inodes=1000"), disk(c"size=100m,nr_inodes=101"));
        assert_eq!(free_disk_bytes(bytes.0.path()).unwrap(), 950 << 10);
        assert_eq!(free_disk_bytes(files.0.path()).unwrap(), 95 * FILE, "the directory itself is one of them");
        std::fs::write(bytes.0.path().join("a"), vec![7; 960 << 10]).unwrap();
        assert_eq!(free_disk_bytes(bytes.0.path()).unwrap(), 0);
    }
}
