//! The layers and images that are on disk, who needs them, and what goes when there is too much.
//!
//! A layer has its name only when it is whole and on disk for good; what has another name is swept away. An image is a small file
//! that names its layers, and counts only while all of them are there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};
use serde::{Deserialize, Serialize};
use tarn_link::Image;
use tokio::sync::Semaphore;

use super::names;
use super::settings::ImageSettings;
use crate::local::{files, trees};

/// What is written down beside the tree of a layer.
const INFO: &str = "layer.json";

/// How many layers are unpacked at once, of all images together.
const UNPACKING: usize = 3;

/// No file about a layer or an image is longer.
const MAX_FILE: u64 = 8 << 20;

/// An image that is on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::local) struct Stored {
    /// The digest of its manifest.
    pub(super) digest: String,
    /// Its layers by their digests, lowest first.
    pub(in crate::local) layers: Vec<String>,
    /// How its programs are run.
    pub(in crate::local) image: Image,
}

/// What is known of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    /// The digest of its archive without compression.
    pub(super) archive: String,
    /// About as much space as it takes.
    pub(super) bytes: u64,
    /// Who was used later has a higher number.
    #[serde(skip)]
    used: u64,
}

/// What is on disk, and what all pulls share.
pub(in crate::local) struct Images {
    pub(super) settings: ImageSettings,
    directory: PathBuf,
    pub(super) turns: Semaphore,
    number: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    layers: BTreeMap<String, Known>,
    /// How many pulls and starts need a layer right now.
    pins: BTreeMap<String, u32>,
    /// What layers take that have no name yet, by their number.
    growing: BTreeMap<u64, u64>,
    uses: u64,
}

/// Keeps layers from being evicted for as long as it lives.
pub(in crate::local) struct Pins<'a> {
    images: &'a Images,
    layers: Vec<String>,
}

impl Images {
    /// Finds what is on disk, and sweeps away what is half made.
    pub(in crate::local) fn open(directory: PathBuf, settings: ImageSettings) -> io::Result<Self> {
        fs::create_dir_all(&directory)?;
        for name in ["layers", "names"] {
            // What is in a layer may become anybody when it is run: nobody but the engine comes near it.
            files::ensure_directory(&directory.join(name), 0o700)?;
        }
        let mut found = Vec::new();
        for entry in fs::read_dir(directory.join("layers"))? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            match load::<Known>(&path.join(INFO)) {
                Some((known, used)) if names::is_hex(&name) => found.push((used, name, known)),
                _ => trees::remove(&path)?,
            }
        }
        found.sort_by_key(|(used, ..)| *used);
        let uses = found.len() as u64;
        let numbered = found.into_iter().zip(1..);
        let layers = numbered.map(|((_, name, known), used)| (name, Known { used, ..known })).collect();
        let state = Mutex::new(State { layers, uses, ..State::default() });
        let images = Images { settings, directory, turns: Semaphore::new(UNPACKING), number: AtomicU64::new(0), state };
        images.forget_incomplete()?;
        Ok(images)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the tree of a layer is.
    pub(in crate::local) fn tree(&self, layer: &str) -> PathBuf {
        self.layer(layer).join("root")
    }

    fn layer(&self, layer: &str) -> PathBuf {
        self.directory.join("layers").join(layer)
    }

    fn name(&self, digest: &str) -> PathBuf {
        self.directory.join("names").join(digest)
    }

    /// An image that is there with all its layers, which stay for as long as the pins do.
    pub(super) fn find(&self, digest: &str) -> Option<(Stored, Pins<'_>)> {
        let (stored, _) = load::<Stored>(&self.name(digest))?;
        let pins = self.pin(stored.layers.clone());
        let all = stored.layers.iter().all(|layer| self.use_layer(layer).is_some());
        all.then_some((stored, pins))
    }

    /// Keeps layers, whether they are there already or not.
    pub(super) fn pin(&self, layers: Vec<String>) -> Pins<'_> {
        let mut state = self.state();
        for layer in &layers {
            *state.pins.entry(layer.clone()).or_default() += 1;
        }
        Pins { images: self, layers }
    }

    /// What is known of a layer that is there; it was used now.
    pub(super) fn use_layer(&self, layer: &str) -> Option<Known> {
        let mut state = self.state();
        state.uses += 1;
        let uses = state.uses;
        let known = state.layers.get_mut(layer)?;
        known.used = uses;
        let found = known.clone();
        drop(state);
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        // Without it the order after a restart is a little wrong.
        let _unordered = utimensat(CWD, self.layer(layer).join(INFO), &times, AtFlags::empty());
        Some(found)
    }

    /// A place for a layer that is coming: its number and its directory.
    pub(super) fn begin(&self) -> io::Result<(u64, PathBuf)> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let place = self.layer(&format!("next-{number}"));
        files::ensure_directory(&place, 0o700)?;
        files::ensure_directory(&place.join("root"), 0o755)?;
        Ok((number, place))
    }

    /// Gives a layer that is whole its name.
    pub(super) fn keep(&self, number: u64, place: &Path, layer: &str, archive: &str, bytes: u64) -> io::Result<()> {
        let known = Known { archive: archive.to_owned(), bytes, used: 0 };
        files::write_durably(&place.join(INFO), &serde_json::to_vec(&known)?, 0o600)?;
        rustix::fs::syncfs(fs::File::open(place)?)?;
        fs::rename(place, self.layer(layer))?;
        files::sync_directory(&self.directory.join("layers"))?;
        let mut state = self.state();
        state.growing.remove(&number);
        state.uses += 1;
        let used = state.uses;
        state.layers.insert(layer.to_owned(), Known { used, ..known });
        Ok(())
    }

    /// Removes what has come of a layer that does not become whole.
    pub(super) fn drop_half(&self, number: u64, place: &Path) -> io::Result<()> {
        let removed = trees::remove(place);
        self.state().growing.remove(&number);
        removed
    }

    /// Writes down an image whose layers are all there, also under the name of the index that leads to it.
    pub(super) fn store(&self, stored: &Stored, also: Option<&str>) -> io::Result<()> {
        for digest in [Some(stored.digest.as_str()), also].into_iter().flatten() {
            files::write_durably(&self.name(digest), &serde_json::to_vec(stored)?, 0o600)?;
        }
        Ok(())
    }

    /// How much a layer may take that comes now, if everything goes that nobody needs.
    pub(super) fn room(&self, in_use: &BTreeSet<String>) -> u64 {
        let state = self.state();
        let kept = state.layers.iter().filter(|(name, _)| state.needs(name, in_use)).map(|(_, known)| known.bytes);
        let taken: u64 = kept.chain(state.growing.values().copied()).sum();
        self.settings.cache_bytes.saturating_sub(taken)
    }

    /// Notes how much a coming layer takes by now, and evicts what was used least recently until everything fits. Says whether
    /// it does.
    pub(super) fn grow(&self, number: u64, bytes: u64, in_use: &BTreeSet<String>) -> io::Result<bool> {
        let evicted = {
            let mut state = self.state();
            state.growing.insert(number, bytes);
            let mut total: u64 =
                state.layers.values().map(|known| known.bytes).chain(state.growing.values().copied()).sum();
            let mut evicted = Vec::new();
            while total > self.settings.cache_bytes {
                let unneeded = state.layers.iter().filter(|(name, _)| !state.needs(name, in_use));
                let Some(oldest) = unneeded.min_by_key(|(_, known)| known.used).map(|(name, _)| name.clone()) else {
                    return Ok(false);
                };
                let known = state.layers.remove(&oldest).map_or(0, |known| known.bytes);
                total = total.saturating_sub(known);
                // It loses its name while nobody can begin to use it.
                let number = self.number.fetch_add(1, Ordering::Relaxed);
                let away = self.layer(&format!("next-{number}"));
                fs::rename(self.layer(&oldest), &away)?;
                tracing::info!(layer = oldest, "a layer was evicted from the cache of images");
                evicted.push(away);
            }
            evicted
        };
        evicted.iter().try_for_each(|away| trees::remove(away))?;
        if !evicted.is_empty() {
            self.forget_incomplete()?;
        }
        Ok(true)
    }

    /// Forgets images that have lost a layer.
    fn forget_incomplete(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.directory.join("names"))? {
            let path = entry?.path();
            let whole = load::<Stored>(&path).is_some_and(|(stored, _)| {
                let state = self.state();
                stored.layers.iter().all(|layer| state.layers.contains_key(layer))
            });
            if !whole {
                files::gone(fs::remove_file(path))?;
            }
        }
        Ok(())
    }
}

impl State {
    fn needs(&self, layer: &str, in_use: &BTreeSet<String>) -> bool {
        self.pins.contains_key(layer) || in_use.contains(layer)
    }
}

impl Drop for Pins<'_> {
    fn drop(&mut self) {
        let mut state = self.images.state();
        for layer in &self.layers {
            if let Some(count) = state.pins.get_mut(layer) {
                *count -= 1;
                if *count == 0 {
                    state.pins.remove(layer);
                }
            }
        }
    }
}

/// What a file says, and when it was changed; nothing if it cannot be read, because everything here can be fetched again.
fn load<T: for<'a> Deserialize<'a>>(path: &Path) -> Option<(T, std::time::SystemTime)> {
    let found = fs::metadata(path).ok().filter(|found| found.len() <= MAX_FILE)?;
    Some((serde_json::from_slice(&fs::read(path).ok()?).ok()?, found.modified().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(n: u8) -> String {
        format!("{n:064x}")
    }

    fn open(directory: &Path, cache_bytes: u64) -> Images {
        Images::open(directory.to_owned(), ImageSettings { cache_bytes, ..ImageSettings::default() }).unwrap()
    }

    fn add(images: &Images, n: u8, bytes: u64) {
        let (number, place) = images.begin().unwrap();
        fs::write(place.join("root/file"), [n]).unwrap();
        assert!(images.grow(number, bytes, &BTreeSet::new()).unwrap());
        images.keep(number, &place, &digest(n), &digest(n), bytes).unwrap();
    }

    fn there(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(directory.join("layers"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_was_used_least_recently_goes_first_and_what_is_needed_stays() {
        let directory = tempfile::tempdir().unwrap();
        let images = open(directory.path(), 100);
        for n in 1..=3 {
            add(&images, n, 30);
        }
        let stored = Stored { digest: digest(9), layers: vec![digest(2)], image: Image::default() };
        images.store(&stored, None).unwrap();
        assert!(images.use_layer(&digest(1)).is_some());
        add(&images, 4, 30);
        assert_eq!(there(directory.path()), [digest(1), digest(3), digest(4)]);
        assert!(images.find(&digest(9)).is_none() && !directory.path().join("names").join(digest(9)).exists());
        let pins = images.pin(vec![digest(3)]);
        let in_use = BTreeSet::from([digest(1)]);
        assert_eq!(images.room(&in_use), 40);
        let (number, place) = images.begin().unwrap();
        assert!(images.grow(number, 40, &in_use).unwrap());
        assert_eq!(there(directory.path()).len(), 3, "the fourth had to go");
        assert!(!images.grow(number, 41, &in_use).unwrap(), "nothing is left to go");
        images.drop_half(number, &place).unwrap();
        drop(pins);
        assert_eq!(images.room(&in_use), 70);
    }

    #[test]
    fn what_is_half_made_is_swept_away_and_the_order_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let images = open(directory.path(), 100);
        add(&images, 1, 30);
        add(&images, 2, 30);
        images.begin().unwrap();
        fs::create_dir(directory.path().join("layers").join(digest(7))).unwrap();
        // The clock of a filesystem may be too coarse to tell two uses apart.
        let old = fs::File::options().write(true).open(images.layer(&digest(2)).join(INFO)).unwrap();
        old.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        drop(images);
        let images = open(directory.path(), 60);
        assert_eq!(there(directory.path()), [digest(1), digest(2)]);
        add(&images, 3, 30);
        assert_eq!(there(directory.path()), [digest(1), digest(3)]);
    }
}
