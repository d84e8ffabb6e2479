//! Reading backups completely, to find what is damaged; and their list.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use tarn_store::{Database, examine};

use super::options::SelectOptions;
use super::parts::contents::{content_fault, read_list};
use super::parts::database;
use super::place::manifest::{DatabaseKind, Manifest};
use super::place::{Backup, Place};
use super::{join_some, print_json, say};
use crate::failure::{Failure, Result};

/// Verifies a backup. The exit code is 1 if it is damaged.
pub(super) async fn run_verify(options: &SelectOptions, is_json: bool) -> Result<ExitCode> {
    let place = Place::open_for_reading(&options.directory)?;
    let backup = place.find(options.backup.as_deref())?;
    let (own, contents) = faults(&place, &backup).await;
    let faults = [own, contents].concat();
    print_json(is_json, &json!({ "backup": backup.name, "intact": faults.is_empty(), "faults": faults }));
    if faults.is_empty() {
        say(is_json, format!("Backup {} is intact.", backup.name));
        return Ok(ExitCode::SUCCESS);
    }
    say(is_json, format!("Backup {} is damaged:\n  {}", backup.name, join_some(&faults)));
    Ok(ExitCode::FAILURE)
}

/// Lists the complete backups of a directory.
pub(super) fn list_backups(options: &SelectOptions, is_json: bool) -> Result<ExitCode> {
    let place = Place::open_for_reading(&options.directory)?;
    let mut all = place.backups()?;
    if let Some(name) = &options.backup {
        all.retain(|backup| backup.name == *name);
        if all.is_empty() {
            return Err(Failure(format!("{} has no backup {name}", place.path.display())));
        }
    }
    let body: Vec<_> = all
        .iter()
        .map(|backup| json!({ "backup": backup.name, "manifest": backup.manifest.as_ref().ok(), "fault": backup.manifest.as_ref().err() }))
        .collect();
    print_json(is_json, &json!({ "backups": body }));
    for backup in &all {
        let line = match &backup.manifest {
            Ok(manifest) => format!(
                "{}  {} bytes of database, {} files of objects with {} bytes, {} volumes",
                backup.name,
                manifest.database_file.bytes,
                manifest.objects.files,
                manifest.objects.bytes,
                manifest.volumes.len()
            ),
            Err(fault) => format!("{}  damaged: {fault}", backup.name),
        };
        say(is_json, line);
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns everything that is wrong with a backup: with its own files, and with the contents of objects.
pub(super) async fn faults(place: &Place, backup: &Backup) -> (Vec<String>, Vec<String>) {
    let manifest = match &backup.manifest {
        Ok(manifest) => manifest,
        Err(fault) => return (vec![fault.clone()], Vec::new()),
    };
    let mut own = faults_of_files(manifest, &backup.directory).await;
    match read_list(&backup.directory) {
        Ok(list) => (own, list.iter().filter_map(|file| content_fault(place, file)).collect()),
        Err(error) => {
            own.push(format!("the list of objects cannot be read: {error}"));
            (own, Vec::new())
        }
    }
}

/// Returns what is wrong with the files of a backup itself, without the contents of objects.
pub(super) async fn faults_of_files(manifest: &Manifest, directory: &Path) -> Vec<String> {
    let volumes = manifest.volumes.iter().map(|volume| &volume.file);
    let files = [&manifest.database_file, &manifest.objects.list].into_iter();
    let files = files.chain(&manifest.secret_key).chain(volumes);
    let mut faults: Vec<String> = files.filter_map(|file| file.fault(directory)).collect();
    if faults.is_empty() && manifest.database == DatabaseKind::Sqlite {
        faults.extend(database_faults(&directory.join(&manifest.database_file.name)).await);
    }
    faults
}

/// Returns what SQLite finds wrong with a copy of a database.
async fn database_faults(path: &Path) -> Vec<String> {
    let store = match database::open_alone(&Database::Sqlite(path.to_owned())).await {
        Ok(store) => store,
        Err(failure) => return vec![failure.0],
    };
    match examine::health(&store).await {
        // A database that is too large for the check in time has its checksum.
        Ok(health) => health.faults.unwrap_or_default(),
        Err(error) => vec![format!("the database cannot be examined: {error}")],
    }
}
