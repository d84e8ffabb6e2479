//! How much may come, and which layers go when there is too much: those that nobody needs, least recently used first.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::disk_space;
use super::{Images, State};
use crate::local::trees;

/// How much may come, and whether it is the disk that has no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(in crate::local::images) bytes: u64,
    pub(in crate::local::images) is_of_disk: bool,
}

/// Whether everything fits.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::local::images) enum Fits {
    Yes,
    /// Perhaps, when this has been removed, which nobody can use any more.
    Without(PathBuf),
    /// Not into the cache: everything in it is needed.
    NotInCache,
    /// Not on the disk.
    NotOnDisk,
}

impl Images {
    /// How much a layer may take that comes now, if everything goes that nobody needs.
    pub(in crate::local::images) fn room(&self, in_use: impl FnOnce() -> BTreeSet<String>) -> io::Result<Share> {
        let state = self.state();
        // Only now: whoever begins to use a layer gives up its pin later, and has to wait for the lock to do so.
        let in_use = in_use();
        let needed = |name: &str| state.needs(name, &in_use);
        let sum = |is_needed: bool| -> u64 {
            state.layers.iter().filter(|(name, _)| needed(name) == is_needed).map(|(_, known)| known.bytes).sum()
        };
        let growing: u64 = state.growing.values().map(|(_, bytes)| bytes).sum();
        let cache = self.settings.cache_bytes.saturating_sub(sum(true).saturating_add(growing));
        let disk = disk_space::free(&self.directory)?.saturating_add(sum(false));
        Ok(Share { bytes: cache.min(disk), is_of_disk: disk < cache })
    }

    /// How much an image takes besides one of its layers, which has this number.
    pub(in crate::local::images) fn others(&self, layers: &[String], number: u64) -> u64 {
        let state = self.state();
        let wanted: BTreeSet<_> = layers.iter().collect();
        let there = wanted.iter().filter_map(|layer| state.layers.get(*layer)).map(|known| known.bytes);
        let coming = state.growing.iter().filter(|(other, (layer, _))| **other != number && wanted.contains(layer));
        there.chain(coming.map(|(_, (_, bytes))| *bytes)).sum()
    }

    /// Sees whether everything fits. If it does not, the layer that was used least recently, and that nobody needs, loses its name.
    pub(in crate::local::images) fn evict(&self, in_use: impl FnOnce() -> BTreeSet<String>) -> io::Result<Fits> {
        let mut state = self.state();
        let named = state.layers.values().map(|known| known.bytes);
        let total: u64 = named.chain(state.growing.values().map(|(_, bytes)| *bytes)).sum();
        let is_over = total > self.settings.cache_bytes;
        if !is_over && disk_space::free(&self.directory)? > 0 {
            return Ok(Fits::Yes);
        }
        let in_use = in_use();
        let unneeded = state.layers.iter().filter(|(name, _)| !state.needs(name, &in_use));
        let Some(oldest) = unneeded.min_by_key(|(_, known)| known.used).map(|(name, _)| name.clone()) else {
            return Ok(if is_over { Fits::NotInCache } else { Fits::NotOnDisk });
        };
        // It loses its name while nobody can begin to use it.
        let (_, away) = self.nameless();
        fs::rename(self.layer(&oldest), &away)?;
        state.layers.remove(&oldest);
        tracing::info!(layer = oldest, "a layer was evicted from the cache of images");
        Ok(Fits::Without(away))
    }

    /// Removes a layer that was evicted, and forgets the images that had it.
    pub(in crate::local::images) fn clear(&self, away: &Path) -> io::Result<()> {
        trees::remove(away)?;
        self.forget_incomplete()
    }
}

impl State {
    fn needs(&self, layer: &str, in_use: &BTreeSet<String>) -> bool {
        self.pins.contains_key(layer) || in_use.contains(layer)
    }
}

#[cfg(test)]
mod tests {
    use super::super::stored_images::Stored;
    use super::super::tests::{add, digest, open, there};
    use super::*;

    /// Lets a layer grow; says whether it fits.
    fn grow(images: &Images, number: u64, bytes: u64, in_use: &BTreeSet<String>) -> Fits {
        images.note(number, &digest(99), bytes);
        loop {
            match images.evict(|| in_use.clone()).unwrap() {
                Fits::Without(away) => images.clear(&away).unwrap(),
                fits => return fits,
            }
        }
    }

    #[test]
    fn what_was_used_least_recently_goes_first_and_what_is_needed_stays() {
        let directory = tempfile::tempdir().unwrap();
        let images = open(directory.path(), 100);
        for n in 1..=3 {
            add(&images, n, 30);
        }
        let stored = Stored { digest: digest(9), layers: vec![digest(2)], image: tarn_link::Image::default() };
        images.store(&stored, None).unwrap();
        assert!(images.use_layer(&digest(1)).is_some());
        add(&images, 4, 30);
        assert_eq!(grow(&images, 99, 0, &BTreeSet::new()), Fits::Yes);
        assert_eq!(there(directory.path()), [digest(1), digest(3), digest(4)]);
        assert!(images.find(&digest(9)).is_none() && !directory.path().join("names").join(digest(9)).exists());
        let pins = images.pin(vec![digest(3)]);
        let in_use = BTreeSet::from([digest(1)]);
        let room = || images.room(|| in_use.clone()).unwrap();
        assert_eq!(room(), Share { bytes: 40, is_of_disk: false });
        let (number, place) = images.begin(&digest(5)).unwrap();
        assert_eq!(grow(&images, number, 40, &in_use), Fits::Yes);
        assert_eq!(there(directory.path()).len(), 3, "the fourth had to go");
        assert_eq!(grow(&images, number, 41, &in_use), Fits::NotInCache, "nothing is left to go");
        images.note(number, &digest(5), 41);
        assert_eq!(images.others(&[digest(1), digest(3), digest(5), digest(6)], number), 60);
        assert_eq!(images.others(&[digest(1), digest(5)], number + 1), 71);
        images.drop_half(number, &place).unwrap();
        drop(pins);
        assert_eq!(room().bytes, 70);
    }
}
