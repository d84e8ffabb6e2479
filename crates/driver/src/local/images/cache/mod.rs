//! The layers on disk, and which are in use.
//!
//! A layer gets its name only when it is complete and durable; anything with another name is removed at the start. The
//! images that consist of layers are in `stored_images`; `eviction` chooses what is removed when there is too little
//! space.

pub(super) mod eviction;
pub(super) mod stored_images;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use self::stored_images::{load_json_file, touch_file};
use super::pull::turns::Turns;
use super::registry::http_clients::HttpClients;
use super::settings::ImageSettings;
use crate::local::host::files;

/// The metadata file beside the tree of a layer.
const LAYER_FILE: &str = "layer.json";

/// The name prefix of layers that are incomplete or evicted.
const INCOMPLETE_PREFIX: &str = "next-";

/// The metadata of a layer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CachedLayer {
    /// The digest of the uncompressed archive; empty if the metadata was lost.
    pub(super) archive: String,
    /// The approximate space that it uses.
    pub(super) bytes: u64,
    /// Whether its root hides all lower layers.
    #[serde(default)]
    pub(super) hides_all: bool,
    /// Grows with every use.
    #[serde(skip)]
    pub(super) used: u64,
}

impl CachedLayer {
    pub(super) fn new(archive: String, bytes: u64, hides_all: bool) -> Self {
        CachedLayer { archive, bytes, hides_all, used: 0 }
    }
}

/// The cache on disk, and what all pulls share.
pub(in crate::local) struct Images {
    pub(super) settings: ImageSettings,
    pub(super) directory: PathBuf,
    pub(super) http_clients: Arc<HttpClients>,
    pub(super) turns: Turns,
    /// Held while image files are written or removed.
    pub(super) naming: Mutex<()>,
    number: AtomicU64,
    state: Mutex<CacheState>,
}

/// The state of all layers.
#[derive(Default)]
pub(super) struct CacheState {
    pub(super) layers: BTreeMap<String, CachedLayer>,
    /// How many pulls and starts need a layer right now.
    pub(super) pins: BTreeMap<String, u32>,
    /// The size of layers that are being unpacked, by their number.
    pub(super) growing: BTreeMap<u64, (String, u64)>,
    uses: u64,
}

/// Keeps layers from being evicted for as long as it lives.
pub(in crate::local) struct Pins<'a> {
    images: &'a Images,
    layers: Vec<String>,
}

impl Images {
    /// Opens the cache. Also returns incomplete layers, which the caller removes; layers in use by instances are never
    /// among them.
    pub(in crate::local) fn open(
        directory: PathBuf,
        settings: ImageSettings,
        in_use: &BTreeSet<String>,
    ) -> io::Result<(Self, Vec<PathBuf>)> {
        fs::create_dir_all(&directory)?;
        for name in ["layers", "names"] {
            // A layer may contain set-user-id programs: only the engine may reach it.
            files::ensure_directory(&directory.join(name), 0o700)?;
        }
        let (mut found, mut incomplete, mut number) = (Vec::new(), Vec::new(), 0);
        for entry in fs::read_dir(directory.join("layers"))? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            if let Some(taken) = name.strip_prefix(INCOMPLETE_PREFIX).and_then(|taken| taken.parse::<u64>().ok()) {
                number = number.max(taken.saturating_add(1));
            }
            if !super::is_digest_hex(&name) {
                incomplete.push(path);
                continue;
            }
            match load_layer(&path, in_use.contains(&name)) {
                Ok((known, used)) => found.push((used, name, known)),
                Err(error) if is_missing_or_invalid(&error) => incomplete.push(path),
                Err(error) => {
                    tracing::warn!(%error, layer = name, "an image layer cannot be read and is left as it is")
                }
            }
        }
        found.sort_by_key(|(used, ..)| *used);
        let uses = found.len() as u64;
        let numbered = found.into_iter().zip(1..);
        let layers = numbered.map(|((_, name, known), used)| (name, CachedLayer { used, ..known })).collect();
        let state = Mutex::new(CacheState { layers, uses, ..CacheState::default() });
        let (turns, naming, number) = (Turns::default(), Mutex::default(), AtomicU64::new(number));
        let http_clients = Arc::new(HttpClients::new(&settings));
        let images = Images { settings, directory, http_clients, turns, naming, number, state };
        images.forget_incomplete_images()?;
        Ok((images, incomplete))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock()
    }

    /// Returns the directory tree of a layer.
    pub(in crate::local) fn tree(&self, layer: &str) -> PathBuf {
        self.layer(layer).join("root")
    }

    pub(super) fn layer(&self, layer: &str) -> PathBuf {
        self.directory.join("layers").join(layer)
    }

    /// Returns whether all of these layers are in the cache.
    pub(in crate::local) fn have(&self, layers: &[String]) -> bool {
        let state = self.state();
        layers.iter().all(|layer| state.layers.contains_key(layer))
    }

    /// Returns the visible layers of an image, lowest first: none below a layer that hides everything.
    pub(super) fn visible_layers(&self, layers: &[String]) -> Vec<String> {
        let state = self.state();
        let hides_all = |layer: &String| state.layers.get(layer).is_some_and(|known| known.hides_all);
        layers[layers.iter().rposition(hides_all).unwrap_or_default()..].to_vec()
    }

    /// Pins layers, whether they are in the cache already or not.
    pub(super) fn pin_layers(&self, layers: Vec<String>) -> Pins<'_> {
        let mut state = self.state();
        for layer in &layers {
            *state.pins.entry(layer.clone()).or_default() += 1;
        }
        Pins { images: self, layers }
    }

    /// Returns the metadata of a cached layer and marks it as used.
    pub(super) fn use_layer(&self, layer: &str) -> Option<CachedLayer> {
        let mut state = self.state();
        state.uses += 1;
        let uses = state.uses;
        let known = state.layers.get_mut(layer)?;
        known.used = uses;
        let found = known.clone();
        drop(state);
        touch_file(&self.layer(layer).join(LAYER_FILE));
        Some(found)
    }

    /// Creates the directory for a new layer; returns its number and its path.
    pub(super) fn begin_layer(&self, layer: &str) -> io::Result<(u64, PathBuf)> {
        let (number, place) = self.unnamed_layer_path();
        self.record_layer_size(number, layer, 0);
        let made = files::ensure_directory(&place, 0o700);
        match made.and_then(|()| files::ensure_directory(&place.join("root"), 0o755)) {
            Ok(()) => Ok((number, place)),
            Err(error) => {
                let _swept_later = self.discard_partial_layer(number, &place);
                Err(error)
            }
        }
    }

    /// Records the current size of a layer that is being unpacked.
    pub(super) fn record_layer_size(&self, number: u64, layer: &str, bytes: u64) {
        self.state().growing.insert(number, (layer.to_owned(), bytes));
    }

    /// Gives a complete layer its name.
    pub(super) fn publish_layer(&self, number: u64, place: &Path, layer: &str, known: CachedLayer) -> io::Result<()> {
        files::write_durably(&place.join(LAYER_FILE), &serde_json::to_vec(&known)?, 0o600)?;
        rustix::fs::syncfs(fs::File::open(place)?)?;
        let mut state = self.state();
        if state.layers.contains_key(layer) {
            // It was pulled from another registry meanwhile.
            drop(state);
            return self.discard_partial_layer(number, place);
        }
        let (_, replaced_path) = self.unnamed_layer_path();
        // An unreadable layer may have this name; no instance uses it.
        files::ignore_missing(fs::rename(self.layer(layer), &replaced_path))?;
        fs::rename(place, self.layer(layer))?;
        state.growing.remove(&number);
        state.uses += 1;
        let used = state.uses;
        state.layers.insert(layer.to_owned(), CachedLayer { used, ..known });
        drop(state);
        files::remove_tree(&replaced_path)?;
        files::sync_directory(&self.directory.join("layers"))
    }

    /// Removes a layer that will not become complete. Its size counts until it is gone.
    pub(super) fn discard_partial_layer(&self, number: u64, place: &Path) -> io::Result<()> {
        files::remove_tree(place)?;
        self.state().growing.remove(&number);
        Ok(())
    }

    /// Returns an unused path for a layer.
    pub(super) fn unnamed_layer_path(&self) -> (u64, PathBuf) {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        (number, self.layer(&format!("{INCOMPLETE_PREFIX}{number}")))
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

/// Loads the metadata of a layer, and when it was last used. A layer in use by an instance is accepted without
/// metadata.
fn load_layer(path: &Path, is_in_use: bool) -> io::Result<(CachedLayer, SystemTime)> {
    if !fs::metadata(path.join("root"))?.is_dir() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    match load_json_file::<CachedLayer>(&path.join(LAYER_FILE)) {
        Err(error) if is_in_use => {
            tracing::warn!(%error, path = %path.display(), "the metadata of a layer is lost");
            Ok((CachedLayer::default(), SystemTime::UNIX_EPOCH))
        }
        known => known,
    }
}

/// Returns whether an error means that something is missing or invalid, and not only unreadable at the moment.
fn is_missing_or_invalid(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, NotADirectory, NotFound, UnexpectedEof};
    matches!(error.kind(), NotFound | NotADirectory | InvalidData | UnexpectedEof)
}

#[cfg(test)]
pub(super) mod tests {
    use super::eviction::FitResult;
    use super::*;

    pub(super) fn test_digest(n: u8) -> String {
        format!("{n:064x}")
    }

    pub(super) fn open_cache(directory: &Path, cache_bytes: u64) -> Images {
        let settings = ImageSettings { cache_bytes, ..ImageSettings::default() };
        let (images, incomplete) = Images::open(directory.to_owned(), settings, &BTreeSet::new()).unwrap();
        incomplete.iter().for_each(|path| files::remove_tree(path).unwrap());
        images
    }

    pub(super) fn add_layer(images: &Images, n: u8, bytes: u64) {
        let (number, place) = images.begin_layer(&test_digest(n)).unwrap();
        fs::write(place.join("root/file"), [n]).unwrap();
        images.record_layer_size(number, &test_digest(n), bytes);
        let known = CachedLayer::new(test_digest(n), bytes, false);
        images.publish_layer(number, &place, &test_digest(n), known).unwrap();
    }

    pub(super) fn layer_names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(directory.join("layers"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Opening the cache removes incomplete layers and keeps the order of use.
    #[test]
    fn opening_removes_incomplete_layers() {
        let directory = tempfile::tempdir().unwrap();
        let images = open_cache(directory.path(), 100);
        add_layer(&images, 1, 30);
        add_layer(&images, 2, 30);
        images.begin_layer(&test_digest(8)).unwrap();
        fs::create_dir(directory.path().join("layers").join(test_digest(7))).unwrap();
        // The resolution of file times may be too coarse to distinguish two uses.
        let old = fs::File::options().write(true).open(images.layer(&test_digest(2)).join(LAYER_FILE)).unwrap();
        old.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        drop(images);
        let images = open_cache(directory.path(), 60);
        assert_eq!(layer_names(directory.path()), [test_digest(1), test_digest(2)]);
        images.record_layer_size(9, &test_digest(3), 30);
        let FitResult::AfterRemoving(evicted_path) = images.evict_one_layer(BTreeSet::new).unwrap() else {
            panic!("nothing was evicted")
        };
        images.remove_evicted_layer(&evicted_path).unwrap();
        assert_eq!(layer_names(directory.path()), [test_digest(1)], "the other one was used before");
    }

    /// A layer that an instance uses is kept, even without metadata.
    #[test]
    fn layers_in_use_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let images = open_cache(directory.path(), 100);
        (1..=3).for_each(|n| add_layer(&images, n, 30));
        for n in 1..=2 {
            fs::write(images.layer(&test_digest(n)).join(LAYER_FILE), "{").unwrap();
        }
        let incomplete = images.begin_layer(&test_digest(4)).unwrap().1;
        drop(images);
        let in_use = BTreeSet::from([test_digest(1)]);
        let (images, swept) = Images::open(directory.path().to_owned(), ImageSettings::default(), &in_use).unwrap();
        assert_eq!(BTreeSet::from_iter(swept), BTreeSet::from([images.layer(&test_digest(2)), incomplete.clone()]));
        assert!(images.have(&[test_digest(1), test_digest(3)]) && !images.have(&[test_digest(2)]));
        // A layer that could not be removed blocks nothing, and a layer without metadata is replaced by a complete one.
        add_layer(&images, 2, 30);
        assert!(images.have(&[test_digest(2)]));
        assert_eq!(
            layer_names(directory.path()),
            [
                test_digest(1),
                test_digest(2),
                test_digest(3),
                incomplete.file_name().unwrap().to_string_lossy().into_owned()
            ]
        );
    }

    #[test]
    fn opaque_root_hides_lower_layers() {
        let directory = tempfile::tempdir().unwrap();
        let images = open_cache(directory.path(), 100);
        (1..=3).for_each(|n| add_layer(&images, n, 1));
        let (number, place) = images.begin_layer(&test_digest(4)).unwrap();
        images.publish_layer(number, &place, &test_digest(4), CachedLayer::new(test_digest(4), 1, true)).unwrap();
        let all = [1, 4, 3].map(test_digest);
        assert_eq!(images.visible_layers(&all), [test_digest(4), test_digest(3)]);
        assert_eq!(images.visible_layers(&all[..1]), [test_digest(1)]);
    }
}
