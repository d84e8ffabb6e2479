//! Reading backups completely, to find what is damaged; and their list.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use tarn_store::{Database, examine};

use super::options::{SelectOptions, VerifyOptions};
use super::parts::contents::{content_faults, read_list};
use super::parts::database;
use super::place::manifest::{DatabaseKind, Manifest};
use super::place::sums::FileSum;
use super::place::{Backup, Place};
use super::record::LastBackup;
use super::{join_some, print_json, say};
use crate::failure::{Failure, Result};

/// Verifies a backup. The exit code is 1 if it is damaged. If it is the last one of an installation, that is recorded.
pub(super) async fn run_verify(options: &VerifyOptions, is_json: bool) -> Result<ExitCode> {
    let location = options.select.location()?;
    let place = Place::open_for_reading(&location).await?;
    let backup = place.find(options.select.backup.as_deref()).await?;
    let (own, contents) = faults(&place, &backup).await?;
    let faults = [own, contents].concat();
    if !faults.is_empty() {
        place.refuse_removed(&backup).await?;
    }
    LastBackup::record_verified(
        &options.data(),
        &backup.name,
        &location.absolute(),
        faults.first().map(String::as_str),
    );
    print_json(is_json, &json!({ "backup": backup.name, "intact": faults.is_empty(), "faults": faults }));
    if faults.is_empty() {
        say(is_json, format!("Backup {} is intact.", backup.name));
        return Ok(ExitCode::SUCCESS);
    }
    say(is_json, format!("Backup {} is damaged:\n  {}", backup.name, join_some(&faults)));
    Ok(ExitCode::FAILURE)
}

/// Lists the complete backups of a place.
pub(super) async fn list_backups(options: &SelectOptions, is_json: bool) -> Result<ExitCode> {
    let place = Place::open_for_reading(&options.location()?).await?;
    let mut all = place.backups().await?;
    if let Some(name) = &options.backup {
        all.retain(|backup| backup.name == *name);
        if all.is_empty() {
            return Err(place.has_no(name));
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

/// Returns everything that is wrong with a backup: with its own files, and with the contents of objects. Fails if the
/// place cannot be reached.
pub(super) async fn faults(place: &Place, backup: &Backup) -> Result<(Vec<String>, Vec<String>)> {
    let failed = |e| Failure::with_cause("cannot read the backup", e);
    let manifest = match &backup.manifest {
        Ok(manifest) => manifest,
        Err(fault) => return Ok((vec![fault.clone()], Vec::new())),
    };
    let medium = &*place.medium;
    let mut own = Vec::new();
    for file in manifest.files() {
        match medium.file_sum(&backup.name, &file.name).await {
            Err(error) if !medium.says_damage(&error) => return Err(failed(error)),
            found => own.extend(file.fault(found)),
        }
    }
    if own.is_empty() && manifest.database == DatabaseKind::Sqlite {
        let local = medium.local_file(&backup.name, &manifest.database_file.name).await.map_err(failed)?;
        own.extend(database_faults(&local.path).await);
    }
    match read_list(medium, &backup.name).await {
        Ok(list) => Ok((own, content_faults(medium, &list).await.map_err(failed)?)),
        Err(error) if !medium.says_damage(&error) => Err(failed(error)),
        Err(error) => {
            own.push(format!("the list of objects cannot be read: {error}"));
            Ok((own, Vec::new()))
        }
    }
}

/// Returns what is wrong with the files of a new backup in its local directory, without the volumes.
pub(super) async fn faults_of_new_files(manifest: &Manifest, directory: &Path) -> Vec<String> {
    let files = manifest.files_without_volumes();
    let mut faults: Vec<String> = files.filter_map(|file| file.fault(FileSum::of(directory, &file.name))).collect();
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
