//! Where a backup is restored to: directories that are free, and prepared under other names; and what survived of the
//! former installation.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tarn_driver::local::restored_pool::{self, ClaimedPool};
use tarn_store::Database;

use super::prepared::{Prepared, Record, discard, prepared_name};
use super::surviving_objects::SurvivingObjects;
use crate::backup::options::RestoreOptions;
use crate::backup::place::manifest::{DatabaseKind, Manifest};
use crate::config::Config;
use crate::data::ownership_mark;
use crate::environment::RandomIds;
use crate::failure::{Failure, Result};

/// Where a backup is restored to.
pub(super) struct Target {
    pub(super) final_data: PathBuf,
    pub(super) database: Database,
    /// The data directory that is being prepared.
    pub(super) data: PathBuf,
    /// The directory of objects that is being prepared or that survived, and the mark that it gets.
    pub(super) objects: PathBuf,
    pub(super) mark: String,
    /// The final name of the directory of objects, if it is new and outside of the data directory.
    pub(super) final_objects: Option<PathBuf>,
    /// The directory of objects, if it survived.
    pub(super) surviving: Option<SurvivingObjects>,
    /// The pool that belongs to the new installation.
    pub(super) pool: PathBuf,
    /// That pool, if anything of it is needed.
    pub(super) claimed: Option<ClaimedPool>,
    pub(super) is_trial: bool,
    /// What keeps other processes from the directories.
    pub(super) held: Vec<Prepared>,
}

/// The places that a configuration names.
struct Places {
    data: PathBuf,
    database: Database,
    /// The directory of objects, if it is outside of the data directory, or else its path in that.
    objects: std::result::Result<PathBuf, PathBuf>,
    pool: Option<PathBuf>,
}

/// Determines where everything goes, and refuses places that are in use. Creates the directories to prepare.
pub(super) fn prepare_target(options: &RestoreOptions, manifest: &Manifest) -> Result<Target> {
    let places = find_places(options, manifest)?;
    let surviving = match &options.take_over_objects {
        Some(directory) => Some(SurvivingObjects::open(directory, places.objects.as_deref().ok(), options.verify)?),
        None => None,
    };
    let new_objects = places.objects.as_ref().ok().filter(|_| surviving.is_none()).cloned();
    for directory in std::iter::once(&places.data).chain(&new_objects) {
        check_free(directory)?;
    }
    let data = begin(&prepared_name(&places.data))?;
    let record =
        Record { mark: ownership_mark::new_mark(&RandomIds), objects: new_objects.clone(), pool: places.pool.clone() };
    let filled = fill_target(options, manifest, places, (&data.path, record), surviving);
    match filled {
        Ok(mut target) => {
            target.held.push(data);
            Ok(target)
        }
        Err(failure) => {
            // Another failure leaves it to the next restore.
            let _ = discard(data);
            Err(failure)
        }
    }
}

fn find_places(options: &RestoreOptions, manifest: &Manifest) -> Result<Places> {
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
    let data = std::path::absolute(&config.data).map_err(|e| Failure::with_cause("cannot resolve --data", e))?;
    let objects = config.objects_directory();
    let objects = match objects.strip_prefix(&config.data) {
        Ok(below) => Err(below.to_owned()),
        // The next restore may have another working directory.
        Err(_) => Ok(std::path::absolute(&objects).unwrap_or(objects)),
    };
    let pool = check_pool(&config, options)?.map(|pool| std::path::absolute(&pool).unwrap_or(pool));
    Ok(Places { data, database, objects, pool })
}

/// Fills in the target: creates the directories and claims the pool.
fn fill_target(
    options: &RestoreOptions,
    manifest: &Manifest,
    places: Places,
    (data, record): (&Path, Record),
    surviving: Option<SurvivingObjects>,
) -> Result<Target> {
    let failed = |e: io::Error| Failure::with_cause(format!("cannot prepare {}", data.display()), e);
    record.write(data).map_err(failed)?;
    // Another restore may have been complete meanwhile.
    check_free(&places.data)?;
    let mut held = Vec::new();
    let objects = match (&surviving, places.objects) {
        (Some(surviving), _) => surviving.directory.clone(),
        (None, Ok(place)) => {
            let prepared = begin(&prepared_name(&place))?;
            let path = prepared.path.clone();
            held.push(prepared);
            path
        }
        (None, Err(below)) => data.join(below),
    };
    let pool = places.pool.unwrap_or_else(|| data.join("volumes"));
    let claimed = if options.take_over_pool || !manifest.volumes.is_empty() {
        let claimed = restored_pool::claim_pool(data, &pool, options.take_over_pool);
        Some(claimed.map_err(failed)?.map_err(|e| Failure(e.to_string()))?)
    } else {
        None
    };
    Ok(Target {
        final_data: places.data,
        database: moved(places.database, data),
        data: data.to_owned(),
        objects,
        mark: record.mark,
        final_objects: record.objects,
        surviving,
        pool,
        claimed,
        is_trial: false,
        held,
    })
}

/// Creates a directory to prepare. What a dead restore left there is removed first.
fn begin(path: &Path) -> Result<Prepared> {
    let shown = path.display();
    let failed = |e: io::Error| Failure::with_cause(format!("cannot create {shown}"), e);
    if let Some(prepared) = Prepared::create(path).map_err(failed)? {
        return Ok(prepared);
    }
    if let Some(left) = Prepared::lock(path).map_err(failed)? {
        discard(left).map_err(|e| {
            Failure::with_cause(format!("{shown} exists, and cannot be removed as what a restore left; remove it"), e)
        })?;
    }
    let prepared = Prepared::create(path).map_err(failed)?;
    prepared.ok_or_else(|| Failure(format!("{shown} is being prepared by another restore; wait until that has ended")))
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

/// Refuses a directory that has content, or that cannot get its name by renaming.
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
    }

    /// Of two restores into one directory one is refused, and leaves the other alone.
    #[test]
    fn second_restore_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = prepared_name(&place.path().join("new"));
        let first = begin(&path).unwrap();
        let said = begin(&path).err().unwrap().0;
        assert!(said.contains("another restore") && path.is_dir(), "{said}");
        drop(first);
        drop(begin(&path).unwrap());
        fs::write(path.join("precious"), "").unwrap();
        assert!(begin(&path).is_err_and(|failure| failure.0.contains("remove it")));
    }
}
