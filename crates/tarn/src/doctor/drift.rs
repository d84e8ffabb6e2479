//! In what the database and the machine differ, and work that nobody does.
//!
//! An engine that runs makes and removes things all the time, so that what differs is looked at again: only what stays is told.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tarn_control::audit::{Difference, differences};
use tarn_driver::findings::{Finding, Level};
use tarn_driver::local::examine::{self, Pool};
use tarn_driver::{Observed, fake, listed};
use tarn_model::storage::{Left, VolumeState};
use tarn_store::{Store, examine as rows, storage};

use super::patient::{Patient, RUN, is_closed};
use super::running::Running;

/// How often it is looked, and how long it is waited in between.
const LOOKS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(700);

/// Work may be so late before it is told.
const GRACE: Duration = Duration::from_secs(120);

const CHECKS: [&str; 6] =
    ["drift.instances", "drift.volumes", "drift.leftovers", "drift.promises", "drift.requests", "drift.jobs"];

/// Things by their names, each with what is said of it.
type Things = BTreeMap<String, String>;

/// Everything that differs. What is said of a thing may change from look to look, its name does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Drift {
    /// What should run and does not, or runs and should not.
    instances: Things,
    /// Volumes that are not as their rows say.
    volumes: Things,
    /// Volumes without a row.
    strange: Things,
    /// What carries the installation's id and belongs to no record.
    leftovers: Things,
}

/// Looks at everything.
pub(super) async fn look(patient: Arc<Patient>) -> Vec<Finding> {
    let skip = |why: &str, todo: &str| CHECKS.map(|check| Finding::skipped(check, why, todo)).into();
    if is_closed(&patient.data) {
        return skip("the data is closed to this user", "run `tarn doctor` as the user that runs the engine");
    }
    if patient.database_file().is_some_and(|file| !file.exists()) {
        return skip("there is no database to compare with yet", "");
    }
    if patient.is_local() && !examine::is_root() {
        return skip("only root sees what is on the machine", "run `tarn doctor` as root");
    }
    let store = match patient.store().await {
        Ok(store) => store,
        Err(_) => return skip("the database cannot be read", "look at database.opens"),
    };
    if !matches!(store.read(rows::version).await, Ok(Some(version)) if version == rows::SCHEMA_VERSION) {
        return skip("the database is not of this program's version", "look at database.schema");
    }
    let mut findings = match compare(&patient, &store).await {
        Ok((drift, pool)) => told(&drift, &patient.running, pool),
        Err(why) => CHECKS[..4].iter().map(|check| Finding::failure(check, &why, "look at the areas above")).collect(),
    };
    findings.extend(work(&store, &patient.running).await);
    findings
}

/// Looks until nothing differs any more, or always the same.
async fn compare(patient: &Patient, store: &Store) -> Result<(Drift, Option<Pool>), String> {
    let (mut drift, mut pool) = once(patient, store).await?;
    for _ in 1..LOOKS {
        if drift == Drift::default() || !matches!(patient.running, Running::Here { .. }) {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        let (again, numbers) = once(patient, store).await?;
        let both =
            |before: &Things, now: Things| now.into_iter().filter(|(name, _)| before.contains_key(name)).collect();
        drift = Drift {
            instances: both(&drift.instances, again.instances),
            volumes: both(&drift.volumes, again.volumes),
            strange: both(&drift.strange, again.strange),
            leftovers: both(&drift.leftovers, again.leftovers),
        };
        pool = numbers;
    }
    Ok((drift, pool))
}

async fn once(patient: &Patient, store: &Store) -> Result<(Drift, Option<Pool>), String> {
    let mut drift = Drift::default();
    let (observed, pool) = match patient.is_local() {
        true => match examine::sight(&patient.data, &patient.pool, Path::new(RUN)).await.map_err(|e| e.to_string())? {
            Some(seen) => {
                drift.leftovers.extend(seen.leftovers.into_iter().map(|one| (one.clone(), one)));
                (seen.observed, seen.pool)
            }
            None => (Observed::default(), None),
        },
        false => (fake::read_world(&patient.data).map_err(|error| format!("the fake driver's world: {error}"))?, None),
    };
    for difference in differences(store, &observed).await.map_err(|error| error.to_string())? {
        match difference {
            Difference::Instance(claimed, seen) => {
                let instance = &claimed.instance;
                let seen = match seen {
                    None => "is not there".to_owned(),
                    Some(seen) if !seen.running => match seen.end {
                        Some(end) => format!("does not run ({})", end.name()),
                        None => "does not run".to_owned(),
                    },
                    Some(seen) => format!("runs in start {} with {} volumes", seen.boot, seen.volumes.len()),
                };
                let (id, state) = (&instance.id, instance.state.name());
                drift.instances.insert(id.to_string(), format!("{id} is {state} in the database and {seen}"));
            }
            Difference::UnknownInstance(id) => {
                drift.instances.insert(id.to_string(), format!("{id} exists and has no row"));
            }
            Difference::Volume(volume, seen) => {
                let seen = match seen {
                    None => "is not there".to_owned(),
                    Some(seen) => seen.fault.clone().unwrap_or_else(|| format!("has {} GB", seen.size_gb())),
                };
                let (id, size, state) = (&volume.id, volume.size_gb, volume.state.name());
                drift.volumes.insert(id.to_string(), format!("{id} is {state} with {size} GB in the database: {seen}"));
            }
            Difference::UnknownVolume(id) => {
                let place = match patient.is_local() {
                    true => patient.pool.join(id.as_str()).display().to_string(),
                    false => id.to_string(),
                };
                drift.strange.insert(id.to_string(), place);
            }
        }
    }
    let volumes = store.read(storage::claimed).await.map_err(|error: tarn_store::Error| error.to_string())?;
    for (volume, _) in volumes {
        // The engine has seen it before, and its row says so.
        if let VolumeState::Failed { left: Left::Data, reason, .. } = &volume.state {
            drift.volumes.insert(volume.id.to_string(), format!("{} has failed: {reason}", volume.id));
        }
    }
    Ok((drift, pool))
}

fn told(drift: &Drift, running: &Running, pool: Option<Pool>) -> Vec<Finding> {
    let list = |of: &Things| listed(&of.values().collect::<Vec<_>>());
    let is_here = matches!(running, Running::Here { .. });
    let level = if is_here { Level::Failure } else { Level::Warning };
    let instances = match drift.instances.is_empty() {
        true => Finding::ok("drift.instances", "every instance is as the database says"),
        false => Finding::of(
            "drift.instances",
            level,
            list(&drift.instances),
            match is_here {
                true => "the engine should have seen this: look at its log; restarting it does no harm",
                false => {
                    "`tarn serve` brings back what ended with the machine, marks what died by itself, and removes what has no row"
                }
            },
        ),
    };
    let volumes = match (drift.volumes.is_empty(), drift.strange.is_empty()) {
        (true, true) => Finding::ok("drift.volumes", "every volume is as the database says"),
        (true, false) => Finding::warning(
            "drift.volumes",
            format!("these volumes are in the pool and have no row: {}", list(&drift.strange)),
            "nothing removes them, because they may hold data; when you know that nobody needs them, remove them there",
        ),
        (false, _) => Finding::failure(
            "drift.volumes",
            list(&drift.volumes),
            "see that the disk of the pool is mounted, or bring their files back from a copy; otherwise destroy the volumes",
        ),
    };
    let leftovers = match drift.leftovers.is_empty() {
        true => Finding::ok("drift.leftovers", "nothing on the machine is left over"),
        false => Finding::warning(
            "drift.leftovers",
            format!("this carries the id of the installation and belongs to no instance: {}", list(&drift.leftovers)),
            match is_here {
                true => "restart `tarn serve`: it sweeps at its start; instances do not notice",
                false => "`tarn serve` sweeps at its start",
            },
        ),
    };
    vec![instances, volumes, leftovers, promises(pool)]
}

fn promises(pool: Option<Pool>) -> Finding {
    const CHECK: &str = "drift.promises";
    let gb = |bytes: u64| bytes / 1_000_000_000;
    match pool {
        Some(pool) if pool.promised_bytes > pool.free_bytes.saturating_add(pool.taken_bytes) => Finding::warning(
            CHECK,
            format!(
                "volumes were promised {} GB, and the pool has {} GB: writes fail when it is full",
                gb(pool.promised_bytes),
                gb(pool.free_bytes.saturating_add(pool.taken_bytes))
            ),
            "make room on the disk of the pool, or destroy volumes; storage.overcommit above 1 allows this",
        ),
        Some(pool) => {
            Finding::ok(CHECK, format!("the pool has room for the {} GB of all volumes", gb(pool.promised_bytes)))
        }
        None => Finding::ok(CHECK, "there is no pool yet"),
    }
}

async fn work(store: &Store, running: &Running) -> Vec<Finding> {
    let overdue = match store.read(|tx| rows::overdue(tx, GRACE)).await {
        Ok(overdue) => overdue,
        Err(error) => {
            let why = error.to_string();
            return CHECKS[4..].iter().map(|check| Finding::failure(check, &why, "look at the database")).collect();
        }
    };
    let is_here = matches!(running, Running::Here { .. });
    let judge = |check, what: &str, ids: &[String]| match ids {
        [] => Finding::ok(check, format!("no {what} waits for somebody to do it")),
        ids if is_here => Finding::failure(
            check,
            format!("nobody has worked on this for {} s: {what} {}", GRACE.as_secs(), listed(ids)),
            "look at the engine's log for what keeps it from it; restarting it does no harm",
        ),
        ids => Finding::note(check, format!("{what} {} waits for an engine", listed(ids)), "start one: tarn serve"),
    };
    vec![judge("drift.requests", "request", &overdue.requests), judge("drift.jobs", "job", &overdue.jobs)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_matters_more_while_an_engine_runs() {
        let drift =
            Drift { instances: Things::from([("i-1".to_owned(), "i-1 exists".to_owned())]), ..Drift::default() };
        let levels =
            |running| told(&drift, &running, None).into_iter().map(|finding| finding.level).collect::<Vec<_>>();
        assert_eq!(levels(Running::Nowhere), [Level::Warning, Level::Ok, Level::Ok, Level::Ok]);
        assert_eq!(levels(Running::Here { pid: None })[0], Level::Failure);
    }

    #[test]
    fn more_promised_than_there_is_is_told() {
        let pool = |promised_bytes| Some(Pool { free_bytes: 50, taken_bytes: 10, promised_bytes });
        assert_eq!((promises(pool(60)).level, promises(pool(61)).level), (Level::Ok, Level::Warning));
    }
}
