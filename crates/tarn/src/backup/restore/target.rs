//! Where a backup is restored to: directories that are free, and prepared under other names.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tarn_base::files;
use tarn_driver::local::restored_pool;
use tarn_store::Database;

use crate::backup::options::RestoreOptions;
use crate::backup::place::directory::create_directory;
use crate::backup::place::manifest::{DatabaseKind, Manifest};
use crate::config::Config;
use crate::failure::{Failure, Result};

/// The end of the name of a directory that is being prepared.
const PREPARED: &str = ".restoring";

/// Where a backup is restored to.
pub(super) struct Target {
    pub(super) final_data: PathBuf,
    pub(super) database: Database,
    /// The data directory that is being prepared.
    pub(super) data: PathBuf,
    /// The directory of objects that is being prepared, and its final name if it is outside of the data directory.
    pub(super) objects: PathBuf,
    pub(super) final_objects: Option<PathBuf>,
    /// The pool that belongs to the new installation.
    pub(super) pool: PathBuf,
    /// Whether the pool may have belonged to another installation. It becomes that of this one even if it is empty.
    pub(super) takes_over_pool: bool,
    pub(super) is_trial: bool,
}

/// Determines where everything goes, and refuses places that are in use. Creates the directories to prepare.
pub(super) fn prepare_target(options: &RestoreOptions, manifest: &Manifest) -> Result<Target> {
    let config = options.installation.load_config()?;
    let database = config.database()?;
    match (manifest.database, &database) {
        (DatabaseKind::Sqlite, Database::Sqlite(_)) | (DatabaseKind::Postgresql, Database::Postgres(_)) => {}
        (DatabaseKind::Sqlite, Database::Postgres(_)) => {
            return Err(Failure("this backup is of SQLite; restore it without --database".to_owned()));
        }
        (DatabaseKind::Postgresql, Database::Sqlite(_)) => {
            return Err(Failure("this backup is of PostgreSQL; give an empty database with --database".to_owned()));
        }
    }
    let final_data = std::path::absolute(&config.data).map_err(|e| Failure::with_cause("cannot resolve --data", e))?;
    let below = config.objects_directory().strip_prefix(&config.data).map(Path::to_owned).ok();
    let final_objects = below.is_none().then(|| config.objects_directory());
    let pool = check_pool(&config, options)?;
    for directory in std::iter::once(&final_data).chain(&final_objects) {
        check_free(directory)?;
    }
    let data = prepared_name(&final_data);
    let objects = final_objects.as_deref().map(prepared_name);
    let objects = objects.unwrap_or_else(|| data.join(below.unwrap_or_default()));
    for directory in [&data, &objects] {
        let created = create_directory(directory);
        created.map_err(|e| Failure::with_cause(format!("cannot create {}", directory.display()), e))?;
    }
    let pool = pool.unwrap_or_else(|| data.join("volumes"));
    Ok(Target {
        final_data,
        database: moved(database, &data),
        data,
        objects,
        final_objects,
        pool,
        takes_over_pool: options.take_over_pool,
        is_trial: false,
    })
}

/// The database as long as its directory is being prepared.
fn moved(database: Database, data: &Path) -> Database {
    match database {
        Database::Sqlite(_) => Database::Sqlite(data.join("tarn.db")),
        other => other,
    }
}

/// Returns the configured pool. One with volumes is refused, unless they are to be used.
fn check_pool(config: &Config, options: &RestoreOptions) -> Result<Option<PathBuf>> {
    let Some(pool) = config.pool() else {
        if options.take_over_pool {
            return Err(Failure("--take-over-pool needs a configuration with storage.pool".to_owned()));
        }
        return Ok(None);
    };
    let shown = pool.display();
    let there = restored_pool::volumes_in(&pool);
    let there = there.map_err(|e| Failure::with_cause(format!("cannot read {shown}"), e))?;
    if !there.is_empty() && !options.take_over_pool {
        return Err(Failure(format!(
            "{shown} has volumes of a former installation; to use them, stop its engine for good and give \
             --take-over-pool"
        )));
    }
    Ok(Some(pool))
}

/// Refuses a directory that has content, or that an interrupted restore was preparing.
fn check_free(directory: &Path) -> Result<()> {
    let is_free = match fs::read_dir(directory) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    let shown = directory.display();
    if !is_free {
        return Err(Failure(format!("{shown} is not an empty directory; restore into a new one")));
    }
    if let Some(what) = unreplaceable(directory) {
        return Err(Failure(format!(
            "{shown} is {what}, and a restored directory gets its name last, by renaming; restore into a new directory \
             below it"
        )));
    }
    let prepared = prepared_name(directory);
    if prepared.exists() {
        return Err(Failure(format!("{} is left over from an interrupted restore; remove it", prepared.display())));
    }
    Ok(())
}

/// Returns why a directory cannot get this name by renaming, which would otherwise show only after everything was
/// copied.
fn unreplaceable(path: &Path) -> Option<&'static str> {
    let own = fs::symlink_metadata(path).ok()?;
    if own.is_symlink() {
        return Some("a symbolic link");
    }
    let above = path.parent().and_then(|parent| fs::metadata(parent).ok())?;
    (own.dev() != above.dev()).then_some("a mount point")
}

/// The directory in which another one is prepared.
fn prepared_name(directory: &Path) -> PathBuf {
    let mut prepared = directory.as_os_str().to_owned();
    prepared.push(PREPARED);
    PathBuf::from(prepared)
}

/// Gives everything its final name, the data directory last.
pub(super) fn publish(target: &Target) -> Result<()> {
    let failed = |e: io::Error| Failure::with_cause("cannot complete the restore", e);
    let disk = |path: &Path| fs::File::open(path).and_then(|file| Ok(rustix::fs::syncfs(&file)?));
    disk(&target.data).and_then(|()| disk(&target.objects)).map_err(failed)?;
    if let Some(place) = &target.final_objects {
        files::publish_file(&target.objects, place).map_err(failed)?;
    }
    files::publish_file(&target.data, &target.final_data).map_err(failed)
}

/// Removes a directory of this process, and enters no other filesystem.
pub(super) fn remove_tree(directory: &Path) -> io::Result<()> {
    let device = fs::symlink_metadata(directory)?.dev();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let found = fs::symlink_metadata(&path)?;
        if found.dev() != device {
            return Err(io::Error::other(format!("{} is on another filesystem", path.display())));
        }
        if found.is_dir() { remove_tree(&path)? } else { fs::remove_file(&path)? }
    }
    fs::remove_dir(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What cannot be renamed to is refused before anything is copied.
    #[test]
    fn only_new_and_empty_directories_are_free() {
        let place = tempfile::tempdir().unwrap();
        let [new, empty, full, link] = ["new", "empty", "full", "link"].map(|name| place.path().join(name));
        fs::create_dir(&empty).unwrap();
        fs::create_dir_all(full.join("tarn.db")).unwrap();
        std::os::unix::fs::symlink(&empty, &link).unwrap();
        let said = |directory: &Path| check_free(directory).err().map(|failure| failure.0).unwrap_or_default();
        assert_eq!([said(&new), said(&empty)], [String::new(), String::new()]);
        assert!(said(&full).contains("not an empty directory"));
        assert!(said(&link).contains("a symbolic link"));
        assert_eq!(unreplaceable(Path::new("/proc")), Some("a mount point"));
        fs::create_dir(prepared_name(&new)).unwrap();
        assert!(said(&new).contains("interrupted restore"));
    }
}
