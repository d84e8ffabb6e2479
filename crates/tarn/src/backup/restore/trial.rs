//! The trial of a restore: into a temporary directory, which is removed again.

use std::path::Path;
use std::process::ExitCode;

use tarn_model::Ids as _;
use tarn_store::Database;

use super::restore_into;
use super::target::{Target, remove_tree};
use crate::backup::options::RestoreOptions;
use crate::backup::place::directory::create_directory;
use crate::backup::place::manifest::{DatabaseKind, Manifest};
use crate::backup::place::{Backup, Place};
use crate::backup::{join_some, print_json, say};
use crate::environment::RandomIds;
use crate::failure::{Failure, Result};

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
    let data = parent.join(format!("tarn-restore-{:016x}", RandomIds.bits()));
    let failed = |e| Failure::with_cause(format!("cannot use {}", data.display()), e);
    create_directory(&data).map_err(failed)?;
    let database = trial_database(options, manifest, &data);
    let target = |database| Target {
        final_data: data.clone(),
        database,
        objects: data.join("objects"),
        final_objects: None,
        pool: data.join("volumes"),
        data: data.clone(),
        takes_over_pool: false,
        is_trial: true,
    };
    let outcome = match database {
        Ok(database) => restore_into(&target(database), place, backup, manifest, key).await,
        Err(failure) => Err(failure),
    };
    remove_tree(&data).map_err(failed)?;
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

fn trial_database(options: &RestoreOptions, manifest: &Manifest, data: &Path) -> Result<Database> {
    match (manifest.database, &options.installation.data.database) {
        (DatabaseKind::Sqlite, _) => Ok(Database::Sqlite(data.join("tarn.db"))),
        (DatabaseKind::Postgresql, Some(url)) => crate::config::parse_database(data, Some(url)),
        (DatabaseKind::Postgresql, None) => Err(Failure(
            "this backup is of PostgreSQL; give an empty database for the trial with --database".to_owned(),
        )),
    }
}
