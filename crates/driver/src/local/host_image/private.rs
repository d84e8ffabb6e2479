//! The private files in the host's `/usr`: those that not all users of the host may read. `root` of an instance owns
//! the files of the host's `root` there, so the mode alone would not protect them: they are covered.
//!
//! Finding them takes a search through all files, from a tenth of a second to several seconds. So the search runs in
//! the background when the engine starts and then about every hour; only the creation of an instance waits for the
//! first search.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tokio::sync::watch;

use super::usr_and_var;
use crate::local::host::files;

/// Sorted paths, relative to `/usr`.
pub(in crate::local) type Paths = Arc<Vec<PathBuf>>;

/// The number of calls of [`Private::again`] between searches: an hour, if it is called every five seconds.
const CALLS: u32 = 720;

/// Searches for private files, and keeps the last result.
pub(in crate::local) struct Private {
    found: Arc<watch::Sender<Option<Result<Paths, String>>>>,
    calls: AtomicU32,
}

impl Private {
    /// Starts the first search.
    pub(in crate::local) fn new() -> Private {
        let private = Private { found: Arc::new(watch::Sender::new(None)), calls: AtomicU32::new(0) };
        private.start_search();
        private
    }

    /// Returns the last result; waits for the first search. A failed search is repeated for the next caller.
    pub(in crate::local) async fn paths(&self) -> io::Result<Paths> {
        let mut looks = self.found.subscribe();
        let found = looks.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
        match found {
            Some(Ok(paths)) => Ok(paths),
            failed => {
                self.found.send_replace(None);
                self.start_search();
                Err(io::Error::other(failed.and_then(Result::err).unwrap_or_default()))
            }
        }
    }

    /// Starts another search once in a while; called every few seconds.
    pub(in crate::local) fn again(&self) {
        if (self.calls.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(CALLS) {
            self.start_search();
        }
    }

    /// Searches on a separate thread, for which the program does not wait at its end.
    fn start_search(&self) {
        let found = self.found.clone();
        let thread = std::thread::Builder::new().name("private-files".to_owned()).spawn(move || {
            let looked = usr_and_var::hidden_paths().and_then(|hidden| find_private_files(Path::new("/usr"), &hidden));
            publish_search(&found, looked.map(Arc::new));
        });
        if let Err(error) = thread {
            publish_search(&self.found, Err(error));
        }
    }
}

/// A later failure does not replace a known result.
fn publish_search(found: &watch::Sender<Option<Result<Paths, String>>>, looked: io::Result<Paths>) {
    if let Err(error) = &looked {
        tracing::warn!(%error, "/usr could not be searched for private files");
    }
    found.send_if_modified(|known| {
        let is_news = looked.is_ok() || !matches!(known, Some(Ok(_)));
        if is_news {
            *known = Some(looked.map_err(|error| error.to_string()));
        }
        is_news
    });
}

/// Returns the paths in `usr` that not all users may read, except those that are hidden anyway. A closed directory is
/// not searched.
pub(super) fn find_private_files(usr: &Path, hidden: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut below) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(directory) = below.pop() {
        let entries = match fs::read_dir(usr.join(&directory)) {
            // A package may just have been removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let path = directory.join(entry.file_name());
            let Ok(seen) = entry.metadata() else { continue };
            if seen.is_symlink() || hidden.contains(&path) {
                continue;
            }
            let needed = if seen.is_dir() { 0o005 } else { 0o004 };
            if seen.mode() & needed != needed {
                found.push(path);
            } else if seen.is_dir() {
                below.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Covers these paths in a layer above `usr`: for the overlay a device 0/0 means that there is nothing.
pub(super) fn cover_private_files(usr: &Path, paths: &[PathBuf], layer: &Path) -> io::Result<()> {
    for path in paths {
        match make_parents(usr, path, layer).and_then(|()| {
            mknodat(CWD, layer.join(path), FileType::CharacterDevice, Mode::empty(), 0).map_err(io::Error::from)
        }) {
            // It is covered already, or an ancestor is, or it is gone.
            Err(error) if is_covered(&error) => {}
            covered => covered?,
        }
    }
    Ok(())
}

fn is_covered(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory | io::ErrorKind::NotFound)
}

/// A directory of the upper layer determines owner and mode, so they must equal those of the lower one.
pub(super) fn make_parents(usr: &Path, path: &Path, layer: &Path) -> io::Result<()> {
    let mut parents: Vec<&Path> = path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()).collect();
    parents.reverse();
    for parent in parents {
        if fs::symlink_metadata(layer.join(parent)).is_ok() {
            continue;
        }
        let found = fs::metadata(usr.join(parent))?;
        files::ensure_directory(&layer.join(parent), found.mode() & 0o7777)?;
        chown(layer.join(parent), Some(found.uid()), Some(found.gid()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn last_successful_search_is_returned() {
        let private = Private { found: Arc::new(watch::Sender::new(None)), calls: AtomicU32::new(0) };
        let paths = |name: &str| Ok(Arc::new(vec![PathBuf::from(name)]));
        publish_search(&private.found, Err(io::Error::other("no")));
        assert!(private.found.borrow().as_ref().is_some_and(Result::is_err));
        publish_search(&private.found, paths("lib/a"));
        publish_search(&private.found, Err(io::Error::other("no")));
        assert_eq!(private.paths().await.unwrap()[..], [PathBuf::from("lib/a")]);
        publish_search(&private.found, paths("lib/b"));
        assert_eq!(private.paths().await.unwrap()[..], [PathBuf::from("lib/b")]);
    }

    #[test]
    fn later_private_files_are_covered_too() {
        let directory = tempfile::tempdir().unwrap();
        let (usr, layer) = (directory.path().join("usr"), directory.path().join("layer"));
        let file = |name: &str, mode: u32| {
            let path = usr.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, name).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        for (name, mode) in [("bin/tool", 0o755), ("lib/deep/password", 0o600), ("lib/deep/open", 0o644)] {
            file(name, mode);
        }
        file("lib/closed/inner", 0o644);
        file("data/key", 0o600);
        fs::set_permissions(usr.join("lib/closed"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::create_dir(&layer).unwrap();
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root makes devices");
            return;
        }
        let hidden = [PathBuf::from("data")];
        let found = find_private_files(&usr, &hidden).unwrap();
        assert_eq!(found, ["lib/closed", "lib/deep/password"].map(PathBuf::from));
        cover_private_files(&usr, &found, &layer).unwrap();
        let covered =
            |name: &str| fs::symlink_metadata(layer.join(name)).is_ok_and(|found| found.rdev() == 0 && !found.is_dir());
        assert!(covered("lib/deep/password") && covered("lib/closed"));
        assert!(!layer.join("lib/deep/open").exists() && !layer.join("bin").exists());
        file("lib/deep/token", 0o640);
        fs::set_permissions(usr.join("bin/tool"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(usr.join("lib/closed"), fs::Permissions::from_mode(0o755)).unwrap();
        file("lib/closed/later", 0o600);
        let found = find_private_files(&usr, &hidden).unwrap();
        assert_eq!(found, ["bin/tool", "lib/closed/later", "lib/deep/password", "lib/deep/token"].map(PathBuf::from));
        cover_private_files(&usr, &found, &layer).unwrap();
        assert!(covered("lib/deep/token") && covered("bin/tool") && covered("lib/closed"));
    }
}
