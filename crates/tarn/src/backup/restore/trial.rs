//! The trial of a restore: into a temporary directory, which is removed again.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;

use tarn_model::Ids as _;
use tarn_store::Database;

use super::prepared::{Prepared, remove_tree};
use super::restore_into;
use super::target::Target;
use crate::backup::options::RestoreOptions;
use crate::backup::place::manifest::{DatabaseKind, Manifest};
use crate::backup::place::{Backup, Place};
use crate::backup::{join_some, print_json, say};
use crate::data::ownership_mark;
use crate::environment::RandomIds;
use crate::failure::{Failure, Result};

/// The beginning of the name of the temporary directory.
const NAME: &str = "tarn-restore-";

/// Restores into a temporary directory, examines the result, and removes it.
pub(super) async fn run_trial(
    options: &RestoreOptions,
    place: &Place,
    backup: &Backup,
    manifest: &Manifest,
    key: Option<String>,
    is_json: bool,
) -> Result<ExitCode> {
    let parent = options.installation.data.data.clone().unwrap_or_else(std::env::temp_dir);
    remove_leftovers(&parent);
    let data = parent.join(format!("{NAME}{:016x}", RandomIds.bits()));
    let failed = |e| Failure::with_cause(format!("cannot use {}", data.display()), e);
    let held = Prepared::create(&data).map_err(failed)?;
    let held = held.ok_or_else(|| Failure(format!("{} exists already; try again", data.display())))?;
    let database = trial_database(options, manifest, &data);
    let target = |database| Target {
        final_data: data.clone(),
        database,
        objects: data.join("objects"),
        mark: ownership_mark::new_mark(&RandomIds),
        final_objects: None,
        surviving: None,
        pool: data.join("volumes"),
        claimed: None,
        data: data.clone(),
        is_trial: true,
        held: Vec::new(),
    };
    let outcome = match database {
        Ok(database) => restore_into(&target(database), place, backup, manifest, key).await,
        Err(failure) => Err(failure),
    };
    remove_tree(&held.path).map_err(failed)?;
    let report = outcome?;
    print_json(is_json, &report);
    say(
        is_json,
        format!(
            "Backup {} can be restored: {} files of objects are there, {} requests and {} jobs would end, and {} clusters \
             would fail.",
            backup.name,
            report.objects,
            report.ended.requests,
            report.ended.jobs,
            report.ended.clusters.len()
        ),
    );
    if report.objects_missing.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    say(is_json, format!("These files of objects are not in it:\n  {}", join_some(&report.objects_missing)));
    Ok(ExitCode::FAILURE)
}

/// Removes what trials left that were killed. A failure must not prevent this trial: it needs nothing of that.
fn remove_leftovers(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_trial = name.to_str().and_then(|name| name.strip_prefix(NAME)).is_some_and(|rest| rest.len() == 16);
        // Other users of the host may have such names, too.
        let is_own = entry.metadata().is_ok_and(|found| {
            found.is_dir() && found.mode() & 0o7777 == 0o700 && found.uid() == rustix::process::geteuid().as_raw()
        });
        if is_trial
            && is_own
            && let Ok(Some(left)) = Prepared::lock(&entry.path())
            && let Err(error) = remove_tree(&left.path)
        {
            eprintln!("tarn: {} was left by an earlier trial and cannot be removed: {error}", left.path.display());
        }
    }
}

fn trial_database(options: &RestoreOptions, manifest: &Manifest, data: &Path) -> Result<Database> {
    match (manifest.database, &options.installation.data.database) {
        (DatabaseKind::Sqlite, _) => Ok(Database::Sqlite(data.join("tarn.db"))),
        (DatabaseKind::Postgresql, Some(url)) => crate::config::parse_database(data, Some(url)),
        (DatabaseKind::Postgresql, None) => Err(Failure(
            "this backup is of PostgreSQL; give an empty database for the trial with --database".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only what a dead trial left is removed.
    #[test]
    fn leftovers_of_trials_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        let [dead, alive] = ["tarn-restore-0000000000000001", "tarn-restore-0000000000000002"].map(at);
        fs::create_dir_all(dead.join("objects/aa")).unwrap();
        fs::set_permissions(&dead, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        fs::write(dead.join("objects/aa/file"), "").unwrap();
        let _held = Prepared::create(&alive).unwrap().unwrap();
        let others = ["tarn-restore-mine", "other", "tarn-restore-0000000000000003"].map(at);
        others.iter().for_each(|other| fs::create_dir(other).unwrap());
        fs::set_permissions(&others[2], std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        remove_leftovers(parent.path());
        assert!(!dead.exists() && alive.exists() && others.iter().all(|other| other.exists()));
    }
}
