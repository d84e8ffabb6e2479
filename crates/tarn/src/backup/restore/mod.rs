//! Restoring a backup as a new installation, and the trial of that.
//!
//! Everything is prepared in a directory beside the new data directory, which gets its name last. So an interrupted
//! restore leaves nothing that an engine would take for its data, and nothing that keeps the former installation from
//! what survived of it.

mod prepared;
mod publish;
mod steps;
mod surviving_objects;
mod target;
mod trial;

use std::path::Path;
use std::process::ExitCode;

use tarn_base::files;
use tarn_control::restored;
use tarn_model::Clock as _;
use tarn_model::events::RestoreLosses;
use tarn_store::{Database, backup};

use super::options::RestoreOptions;
use super::parts::{contents, database};
use super::place::manifest::Manifest;
use super::place::{Backup, Place};
use super::{join_some, print_json, say, verify};
use crate::data::ownership_mark;
use crate::environment::SystemClock;
use crate::failure::{Failure, Result};
use publish::{give_up, publish};
use steps::{
    missing_objects, open_key, open_restored, present_volumes, restore_database, restore_objects, restore_volumes,
};
use target::{Target, prepare_target};
use trial::run_trial;

/// What is reported about a restore.
#[derive(serde::Serialize)]
struct Report {
    backup: String,
    #[serde(flatten)]
    ended: RestoreLosses,
    /// Contents of objects that the backup does not have, or that are damaged in it.
    objects_missing: Vec<String>,
    objects: u64,
    /// How many files of objects survived that the database does not name.
    objects_unnamed: u64,
    faults: Vec<String>,
}

/// Restores a backup, or tries to.
pub(super) async fn run_restore(options: &RestoreOptions, is_json: bool) -> Result<ExitCode> {
    options.check_options()?;
    let place = Place::open_for_reading(&options.select.location()?).await?;
    let backup = place.find(options.select.backup.as_deref()).await?;
    let manifest = backup.manifest.clone().map_err(|fault| {
        Failure(format!("backup {} is damaged: {fault}; choose another one with --backup", backup.name))
    })?;
    let (own, faults) = verify::faults(&place, &backup).await?;
    if !own.is_empty() || !faults.is_empty() && !options.damaged {
        let todo = if own.is_empty() { ", or restore what is intact with --damaged" } else { "" };
        return Err(Failure(format!(
            "backup {} is damaged; choose another one with --backup{todo}:\n  {}",
            backup.name,
            join_some(&[own, faults].concat())
        )));
    }
    let key = open_key(options, &place, &backup, &manifest).await?;
    if options.check {
        return run_trial(options, &place, &backup, &manifest, key, is_json).await;
    }
    let target = prepare_target(options, &manifest)?;
    let report = match restore_into(&target, &place, &backup, &manifest, key).await {
        Ok(report) => report,
        Err(failure) => {
            give_up(target);
            return Err(failure);
        }
    };
    let data = target.final_data.clone();
    publish(target)?;
    print_report(&report, &data, &manifest, is_json);
    Ok(if report.objects_missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn restore_into(
    target: &Target,
    place: &Place,
    backup: &Backup,
    manifest: &Manifest,
    key: Option<String>,
) -> Result<Report> {
    restore_database(target, place, backup, manifest).await?;
    let outcome = finish_restore(target, place, backup, manifest, key).await;
    if target.is_trial
        && let Database::Postgres(_) = &target.database
    {
        let store = open_restored(&target.database).await?;
        let emptied = store.write(backup::remove_everything).await;
        emptied.map_err(|e| Failure::with_cause("cannot empty the database of the trial", e))?;
    }
    outcome
}

async fn finish_restore(
    target: &Target,
    place: &Place,
    backup: &Backup,
    manifest: &Manifest,
    key: Option<String>,
) -> Result<Report> {
    let store = open_restored(&target.database).await?;
    let list = contents::read_list(&*place.medium, &backup.name).await;
    let list = list.map_err(|e| Failure::with_cause("cannot read the objects", e))?;
    if let Some(surviving) = &target.surviving {
        surviving.prepare(&target.data, database::read_identity(&store).await?.objects_mark.as_deref())?;
    }
    restore_objects(target, place, &list).await?;
    let (objects_missing, objects_unnamed) = missing_objects(&store, target).await?;
    let present = present_volumes(target, manifest)?;
    let why = format!(
        "The installation was restored at {} from a backup of {}, and what ran on the former host was not brought back",
        SystemClock.now(),
        manifest.created
    );
    let ended = restored::end_former_work(&store, &why, &present, (ownership_mark::MARK_NAME, &target.mark)).await;
    let ended = ended.map_err(|e| Failure::with_cause("cannot end what ran on the former host", e))?;
    let faults = restored::audit_restored(&store, &present).await;
    let faults = faults.map_err(|e| Failure::with_cause("cannot examine the restored database", e))?;
    if !faults.is_empty() {
        return Err(Failure(format!("the restored database is not right:\n  {}", join_some(&faults))));
    }
    if target.claimed.is_some() {
        restore_volumes(target, place, backup, manifest).await?;
    }
    if let Some(key) = key {
        let written = files::write_file(&target.data.join("secret.key"), key.as_bytes(), 0o600);
        written.map_err(|e| Failure::with_cause("cannot write the master key", e))?;
    }
    let objects = list.len() as u64 - objects_missing.len().min(list.len()) as u64;
    Ok(Report { backup: backup.name.clone(), ended, objects_missing, objects, objects_unnamed, faults })
}

fn print_report(report: &Report, data: &Path, manifest: &Manifest, is_json: bool) {
    print_json(is_json, report);
    let (data, ended) = (data.display(), &report.ended);
    say(is_json, format!("Backup {} of {} is restored into {data}.", report.backup, manifest.created));
    say(is_json, format!("  objects   {} files", report.objects));
    if report.objects_unnamed > 0 {
        let count = report.objects_unnamed;
        say(
            is_json,
            format!("            {count} more survived that the backup does not name; the engine removes them"),
        );
    }
    say(is_json, format!("  volumes   {} with their data", ended.volumes));
    say(is_json, "It is a new installation. Not brought back:");
    say(is_json, format!("  {} requests in progress and {} jobs, which failed", ended.requests, ended.jobs));
    say(is_json, format!("  {} clusters, which are FAILED", ended.clusters.len()));
    if !ended.clusters.is_empty() {
        say(is_json, format!("  {}", join_some(&ended.clusters)));
    }
    say(is_json, format!("  {} volumes without their data, which are FAILED", ended.volumes_missing.len()));
    if !ended.volumes_missing.is_empty() {
        say(is_json, format!("  {}", join_some(&ended.volumes_missing)));
    }
    if !report.objects_missing.is_empty() {
        say(is_json, format!("  files of objects:\n  {}", join_some(&report.objects_missing)));
    }
    say(is_json, format!("Start it with: tarn serve --data {data}"));
}
