//! The layers that are on disk, and who needs them.
//!
//! A layer has its name only when it is whole and on disk for good; what has another name is swept away. The images that are made of
//! them are in `kept`, and what goes when there is too much in `eviction`.

mod disk_space;
pub(super) mod eviction;
pub(super) mod stored_images;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use self::stored_images::{load, touch};
use super::names;
use super::pull::unpack_permits::Turns;
use super::settings::ImageSettings;
use crate::local::{files, trees};

/// What is written down beside the tree of a layer.
const INFO: &str = "layer.json";

/// What the names of layers begin with that are not whole, or not wanted any more.
const HALF: &str = "next-";

/// What is known of a layer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    /// The digest of its archive without compression; empty if that was lost.
    pub(super) archive: String,
    /// About as much space as it takes.
    pub(super) bytes: u64,
    /// Whether its root hides everything below it.
    #[serde(default)]
    pub(super) hides_all: bool,
    /// Who was used later has a higher number.
    #[serde(skip)]
    pub(super) used: u64,
}

impl Known {
    pub(super) fn new(archive: String, bytes: u64, hides_all: bool) -> Self {
        Known { archive, bytes, hides_all, used: 0 }
    }
}

/// What is on disk, and what all pulls share.
pub(in crate::local) struct Images {
    pub(super) settings: ImageSettings,
    pub(super) directory: PathBuf,
    pub(super) turns: Turns,
    /// Held while images are written down or forgotten.
    pub(super) naming: Mutex<()>,
    number: AtomicU64,
    state: Mutex<State>,
}

/// What is known of all layers.
#[derive(Default)]
pub(super) struct State {
    pub(super) layers: BTreeMap<String, Known>,
    /// How many pulls and starts need a layer right now.
    pub(super) pins: BTreeMap<String, u32>,
    /// Layers that have no name yet and what they take, by their number.
    pub(super) growing: BTreeMap<u64, (String, u64)>,
    uses: u64,
}

/// Keeps layers from being evicted for as long as it lives.
pub(in crate::local) struct Pins<'a> {
    images: &'a Images,
    layers: Vec<String>,
}

impl Images {
    /// Finds what is on disk, and what of it is half made and has to be swept away. What instances stand on is never among that.
    pub(in crate::local) fn open(
        directory: PathBuf,
        settings: ImageSettings,
        in_use: &BTreeSet<String>,
    ) -> io::Result<(Self, Vec<PathBuf>)> {
        fs::create_dir_all(&directory)?;
        for name in ["layers", "names"] {
            // What is in a layer may become anybody when it is run: nobody but the engine comes near it.
            files::ensure_directory(&directory.join(name), 0o700)?;
        }
        let (mut found, mut half, mut number) = (Vec::new(), Vec::new(), 0);
        for entry in fs::read_dir(directory.join("layers"))? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            if let Some(taken) = name.strip_prefix(HALF).and_then(|taken| taken.parse::<u64>().ok()) {
                number = number.max(taken.saturating_add(1));
            }
            if !names::is_hex(&name) {
                half.push(path);
                continue;
            }
            match look(&path, in_use.contains(&name)) {
                Ok((known, used)) => found.push((used, name, known)),
                Err(error) if is_lost(&error) => half.push(path),
                Err(error) => {
                    tracing::warn!(%error, layer = name, "a layer of images cannot be read; it is left alone")
                }
            }
        }
        found.sort_by_key(|(used, ..)| *used);
        let uses = found.len() as u64;
        let numbered = found.into_iter().zip(1..);
        let layers = numbered.map(|((_, name, known), used)| (name, Known { used, ..known })).collect();
        let state = Mutex::new(State { layers, uses, ..State::default() });
        let (turns, naming, number) = (Turns::default(), Mutex::default(), AtomicU64::new(number));
        let images = Images { settings, directory, turns, naming, number, state };
        images.forget_incomplete()?;
        Ok((images, half))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the tree of a layer is.
    pub(in crate::local) fn tree(&self, layer: &str) -> PathBuf {
        self.layer(layer).join("root")
    }

    pub(super) fn layer(&self, layer: &str) -> PathBuf {
        self.directory.join("layers").join(layer)
    }

    /// Whether all of these layers are there.
    pub(in crate::local) fn have(&self, layers: &[String]) -> bool {
        let state = self.state();
        layers.iter().all(|layer| state.layers.contains_key(layer))
    }

    /// What is seen of the layers of an image, lowest first: nothing below one that hides everything.
    pub(super) fn seen(&self, layers: &[String]) -> Vec<String> {
        let state = self.state();
        let hides_all = |layer: &String| state.layers.get(layer).is_some_and(|known| known.hides_all);
        layers[layers.iter().rposition(hides_all).unwrap_or_default()..].to_vec()
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
        touch(&self.layer(layer).join(INFO));
        Some(found)
    }

    /// A place for a layer that is coming: its number and its directory.
    pub(super) fn begin(&self, layer: &str) -> io::Result<(u64, PathBuf)> {
        let (number, place) = self.nameless();
        self.note(number, layer, 0);
        let made = files::ensure_directory(&place, 0o700);
        match made.and_then(|()| files::ensure_directory(&place.join("root"), 0o755)) {
            Ok(()) => Ok((number, place)),
            Err(error) => {
                let _swept_later = self.drop_half(number, &place);
                Err(error)
            }
        }
    }

    /// Notes how much a coming layer takes by now.
    pub(super) fn note(&self, number: u64, layer: &str, bytes: u64) {
        self.state().growing.insert(number, (layer.to_owned(), bytes));
    }

    /// Gives a layer that is whole its name.
    pub(super) fn keep(&self, number: u64, place: &Path, layer: &str, known: Known) -> io::Result<()> {
        files::write_durably(&place.join(INFO), &serde_json::to_vec(&known)?, 0o600)?;
        rustix::fs::syncfs(fs::File::open(place)?)?;
        let mut state = self.state();
        if state.layers.contains_key(layer) {
            // It has come from another registry meanwhile.
            drop(state);
            return self.drop_half(number, place);
        }
        let (_, away) = self.nameless();
        // Something that cannot be read may have its name, and nobody stands on that.
        files::gone(fs::rename(self.layer(layer), &away))?;
        fs::rename(place, self.layer(layer))?;
        state.growing.remove(&number);
        state.uses += 1;
        let used = state.uses;
        state.layers.insert(layer.to_owned(), Known { used, ..known });
        drop(state);
        trees::remove(&away)?;
        files::sync_directory(&self.directory.join("layers"))
    }

    /// Removes what has come of a layer that does not become whole. Until it is gone it takes its place.
    pub(super) fn drop_half(&self, number: u64, place: &Path) -> io::Result<()> {
        trees::remove(place)?;
        self.state().growing.remove(&number);
        Ok(())
    }

    /// A place that nothing has.
    pub(super) fn nameless(&self) -> (u64, PathBuf) {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        (number, self.layer(&format!("{HALF}{number}")))
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

/// What is known of a layer that has its name, and when it was used. One that instances stand on is used as it is.
fn look(path: &Path, is_in_use: bool) -> io::Result<(Known, SystemTime)> {
    if !fs::metadata(path.join("root"))?.is_dir() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    match load::<Known>(&path.join(INFO)) {
        Err(error) if is_in_use => {
            tracing::warn!(%error, path = %path.display(), "what a layer takes is not known any more");
            Ok((Known::default(), SystemTime::UNIX_EPOCH))
        }
        known => known,
    }
}

/// Whether an error says that something is not there or not right, and not only that it could not be read now.
fn is_lost(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, NotADirectory, NotFound, UnexpectedEof};
    matches!(error.kind(), NotFound | NotADirectory | InvalidData | UnexpectedEof)
}

#[cfg(test)]
pub(super) mod tests {
    use super::eviction::Fits;
    use super::*;

    pub(in crate::local::images) fn digest(n: u8) -> String {
        format!("{n:064x}")
    }

    pub(in crate::local::images) fn open(directory: &Path, cache_bytes: u64) -> Images {
        let settings = ImageSettings { cache_bytes, ..ImageSettings::default() };
        let (images, half) = Images::open(directory.to_owned(), settings, &BTreeSet::new()).unwrap();
        half.iter().for_each(|path| trees::remove(path).unwrap());
        images
    }

    pub(in crate::local::images) fn add(images: &Images, n: u8, bytes: u64) {
        let (number, place) = images.begin(&digest(n)).unwrap();
        fs::write(place.join("root/file"), [n]).unwrap();
        images.note(number, &digest(n), bytes);
        let known = Known::new(digest(n), bytes, false);
        images.keep(number, &place, &digest(n), known).unwrap();
    }

    pub(in crate::local::images) fn there(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(directory.join("layers"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_half_made_is_swept_away_and_the_order_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let images = open(directory.path(), 100);
        add(&images, 1, 30);
        add(&images, 2, 30);
        images.begin(&digest(8)).unwrap();
        fs::create_dir(directory.path().join("layers").join(digest(7))).unwrap();
        // The clock of a filesystem may be too coarse to tell two uses apart.
        let old = fs::File::options().write(true).open(images.layer(&digest(2)).join(INFO)).unwrap();
        old.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        drop(images);
        let images = open(directory.path(), 60);
        assert_eq!(there(directory.path()), [digest(1), digest(2)]);
        images.note(9, &digest(3), 30);
        let Fits::Without(away) = images.evict(BTreeSet::new).unwrap() else { panic!("there is no room") };
        images.clear(&away).unwrap();
        assert_eq!(there(directory.path()), [digest(1)], "the other one was used before");
    }

    #[test]
    fn what_instances_stand_on_is_never_swept_away() {
        let directory = tempfile::tempdir().unwrap();
        let images = open(directory.path(), 100);
        (1..=3).for_each(|n| add(&images, n, 30));
        for n in 1..=2 {
            fs::write(images.layer(&digest(n)).join(INFO), "{").unwrap();
        }
        let half = images.begin(&digest(4)).unwrap().1;
        drop(images);
        let in_use = BTreeSet::from([digest(1)]);
        let (images, swept) = Images::open(directory.path().to_owned(), ImageSettings::default(), &in_use).unwrap();
        assert_eq!(BTreeSet::from_iter(swept), BTreeSet::from([images.layer(&digest(2)), half.clone()]));
        assert!(images.have(&[digest(1), digest(3)]) && !images.have(&[digest(2)]));
        // What could not be swept is in nobody's way, and what has lost its papers gives its name to one that has them.
        add(&images, 2, 30);
        assert!(images.have(&[digest(2)]));
        assert_eq!(
            there(directory.path()),
            [digest(1), digest(2), digest(3), half.file_name().unwrap().to_string_lossy().into_owned()]
        );
    }

    #[test]
    fn nothing_is_seen_below_a_layer_that_hides_everything() {
        let directory = tempfile::tempdir().unwrap();
        let images = open(directory.path(), 100);
        (1..=3).for_each(|n| add(&images, n, 1));
        let (number, place) = images.begin(&digest(4)).unwrap();
        images.keep(number, &place, &digest(4), Known::new(digest(4), 1, true)).unwrap();
        let all = [1, 4, 3].map(digest);
        assert_eq!(images.seen(&all), [digest(4), digest(3)]);
        assert_eq!(images.seen(&all[..1]), [digest(1)]);
    }
}
