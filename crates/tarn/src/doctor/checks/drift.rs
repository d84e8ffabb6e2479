//! Differences between the database and the host, and overdue work.
//!
//! A running engine changes things all the time, so differences are observed several times, and only those that stay
//! are reported.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tarn_control::audit::{Difference, differences, miscounts};
use tarn_driver::findings::{Finding, Level};
use tarn_driver::local::examine::{self, Pool};
use tarn_driver::{Observed, fake, format_short_list};
use tarn_model::storage::{VolumeRemains, VolumeState};
use tarn_store::{Store, examine as rows, storage};

use crate::doctor::probes::engine_state::EngineState;
use crate::doctor::target::{RUN, Target, is_unreadable};

/// The number of observations, and the pause between them.
const OBSERVATIONS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(700);

/// How many rows are read at a time.
const PAGE_SIZE: u32 = 200;

/// How late work may be before it is reported.
const GRACE: Duration = Duration::from_secs(120);

const CHECKS: [&str; 7] = [
    "drift.instances",
    "drift.volumes",
    "drift.leftovers",
    "drift.promises",
    "drift.counts",
    "drift.requests",
    "drift.jobs",
];

/// Differing things by name, each with its description.
type Differences = BTreeMap<String, String>;

/// All differences. The description of a thing may change between observations, its name does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Drift {
    /// Instances that should run and do not, or run and should not.
    instances: Differences,
    /// Volumes that differ from their rows.
    volumes: Differences,
    /// Volumes without a row.
    unknown_volumes: Differences,
    /// Things that carry the ID of the installation and belong to no record.
    leftovers: Differences,
}

/// Checks all differences.
pub(in crate::doctor) async fn check_drift(target: Arc<Target>) -> Vec<Finding> {
    let skip = |why: &str, todo: &str| CHECKS.map(|check| Finding::skipped(check, why, todo)).into();
    if is_unreadable(&target.data) {
        return skip("this user may not read the data directory", "run `tarn doctor` as the user that runs the engine");
    }
    if target.database_file().is_some_and(|file| !file.exists()) {
        return skip("there is no database to compare with", "");
    }
    if target.is_local() && !examine::is_root() {
        return skip("only root sees the instances on the host", "run `tarn doctor` as root");
    }
    let store = match target.open_store().await {
        Ok(store) => store,
        Err(_) => return skip("cannot read the database", "see database.opens"),
    };
    if !matches!(store.read(rows::version).await, Ok(Some(version)) if version == rows::SCHEMA_VERSION) {
        return skip("the database has another version than this program", "see database.schema");
    }
    let mut findings = match compare_until_stable(&target, &store).await {
        Ok((drift, pool)) => drift_findings(&drift, &target.engine_state, pool),
        Err(why) => CHECKS[..4].iter().map(|check| Finding::failure(check, &why, "see the areas above")).collect(),
    };
    findings.push(check_counts(&store).await);
    findings.extend(check_overdue_work(&store, &target.engine_state).await);
    findings
}

/// Compares until nothing differs, or only things that always differ are left.
async fn compare_until_stable(target: &Target, store: &Store) -> Result<(Drift, Option<Pool>), String> {
    let (mut drift, mut pool) = compare_once(target, store).await?;
    for _ in 1..OBSERVATIONS {
        if drift == Drift::default() || !matches!(target.engine_state, EngineState::Running { .. }) {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        let (again, numbers) = compare_once(target, store).await?;
        let both = |before: &Differences, now: Differences| {
            now.into_iter().filter(|(name, _)| before.contains_key(name)).collect()
        };
        drift = Drift {
            instances: both(&drift.instances, again.instances),
            volumes: both(&drift.volumes, again.volumes),
            unknown_volumes: both(&drift.unknown_volumes, again.unknown_volumes),
            leftovers: both(&drift.leftovers, again.leftovers),
        };
        pool = numbers;
    }
    Ok((drift, pool))
}

async fn compare_once(target: &Target, store: &Store) -> Result<(Drift, Option<Pool>), String> {
    let mut drift = Drift::default();
    let (observed, pool) = if target.is_local() {
        match examine::snapshot(&target.data, &target.pool, Path::new(RUN)).await.map_err(|e| e.to_string())? {
            Some(seen) => {
                drift.leftovers.extend(seen.leftovers.into_iter().map(|one| (one.clone(), one)));
                (seen.observed, seen.pool)
            }
            None => (Observed::default(), None),
        }
    } else {
        (fake::read_world(&target.data).map_err(|error| format!("the world file of the fake driver: {error}"))?, None)
    };
    for difference in differences(store, &observed).await.map_err(|error| error.to_string())? {
        match difference {
            Difference::Instance(claimed, seen) => {
                let instance = &claimed.instance;
                let seen = match seen {
                    None => "does not exist".to_owned(),
                    Some(seen) if !seen.running => match seen.end {
                        Some(end) => format!("does not run ({})", end.name()),
                        None => "does not run".to_owned(),
                    },
                    Some(seen) => format!("runs (start {}) with {} volumes", seen.boot, seen.volumes.len()),
                };
                let (id, state) = (&instance.id, instance.state.name());
                drift.instances.insert(id.to_string(), format!("{id} is {state} in the database and {seen}"));
            }
            Difference::UnknownInstance(id) => {
                drift.instances.insert(id.to_string(), format!("{id} exists but has no row in the database"));
            }
            Difference::Volume(volume, seen) => {
                let seen = match seen {
                    None => "does not exist".to_owned(),
                    Some(seen) => seen.fault.clone().unwrap_or_else(|| format!("has {} GB", seen.size_gb())),
                };
                let (id, size, state) = (&volume.id, volume.size_gb, volume.state.name());
                drift.volumes.insert(id.to_string(), format!("{id} is {state} with {size} GB in the database: {seen}"));
            }
            Difference::UnknownVolume(id) => {
                let place = if target.is_local() {
                    target.pool.join(id.as_str()).display().to_string()
                } else {
                    id.to_string()
                };
                drift.unknown_volumes.insert(id.to_string(), place);
            }
        }
    }
    add_failed_volumes(store, &mut drift).await.map_err(|error| error.to_string())?;
    Ok((drift, pool))
}

/// Adds the volumes whose failure the engine has already recorded in their rows.
async fn add_failed_volumes(store: &Store, drift: &mut Drift) -> tarn_store::Result<()> {
    let mut after = None;
    loop {
        let page = store.read(|tx| storage::remaining(tx, after.as_ref(), PAGE_SIZE)).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.id.clone());
        for volume in &page {
            if let VolumeState::Failed { left: VolumeRemains::Data, reason, .. } = &volume.state {
                drift.volumes.insert(volume.id.to_string(), format!("{} has failed: {reason}", volume.id));
            }
        }
    }
}

fn drift_findings(drift: &Drift, engine_state: &EngineState, pool: Option<Pool>) -> Vec<Finding> {
    let list = |of: &Differences| format_short_list(&of.values().collect::<Vec<_>>());
    let is_running = matches!(engine_state, EngineState::Running { .. });
    let level = if is_running { Level::Failure } else { Level::Warning };
    let instances = if drift.instances.is_empty() {
        Finding::ok("drift.instances", "every instance matches the database")
    } else {
        Finding::of(
            "drift.instances",
            level,
            list(&drift.instances),
            if is_running {
                "the engine should have noticed this; see its log. Restarting it is safe"
            } else {
                "`tarn serve` restarts what ended with the host, marks what died, and removes what has no row"
            },
        )
    };
    let volumes = match (drift.volumes.is_empty(), drift.unknown_volumes.is_empty()) {
        (true, true) => Finding::ok("drift.volumes", "every volume matches the database"),
        (true, false) => Finding::warning(
            "drift.volumes",
            format!("these volumes are in the pool but not in the database: {}", list(&drift.unknown_volumes)),
            "nothing removes them, because they may hold data; delete them there if they are not needed",
        ),
        (false, _) => Finding::failure(
            "drift.volumes",
            list(&drift.volumes),
            "check that the disk of the pool is mounted, or restore a backup; otherwise destroy the volumes",
        ),
    };
    let leftovers = if drift.leftovers.is_empty() {
        Finding::ok("drift.leftovers", "nothing is left over on the host")
    } else {
        Finding::warning(
            "drift.leftovers",
            format!("these things of this installation belong to no instance: {}", list(&drift.leftovers)),
            if is_running {
                "restart `tarn serve`, which removes them at start; instances continue"
            } else {
                "`tarn serve` removes them at start"
            },
        )
    };
    vec![instances, volumes, leftovers, check_promises(pool)]
}

fn check_promises(pool: Option<Pool>) -> Finding {
    const CHECK: &str = "drift.promises";
    let gb = |bytes: u64| bytes / 1_000_000_000;
    match pool {
        Some(pool) if pool.promised_bytes > pool.free_bytes.saturating_add(pool.taken_bytes) => Finding::warning(
            CHECK,
            format!(
                "the volumes add up to {} GB, but the pool has only {} GB; writes fail when it is full",
                gb(pool.promised_bytes),
                gb(pool.free_bytes.saturating_add(pool.taken_bytes))
            ),
            "free space on the disk of the pool, or destroy volumes; storage.overcommit above 1 allows this",
        ),
        Some(pool) => {
            Finding::ok(CHECK, format!("the pool has room for the {} GB of all volumes", gb(pool.promised_bytes)))
        }
        None => Finding::ok(CHECK, "there is no pool yet"),
    }
}

async fn check_counts(store: &Store) -> Finding {
    const CHECK: &str = "drift.counts";
    match miscounts(store).await {
        Ok(found) if found.is_empty() => Finding::ok(CHECK, "the counts of what exists are right"),
        Ok(found) => Finding::failure(
            CHECK,
            format!("limits and balances are compared with wrong counts: {}", format_short_list(&found)),
            "restart the engine, which corrects them; do not run an older program beside it",
        ),
        Err(error) => Finding::failure(CHECK, error.to_string(), "see the area of the database"),
    }
}

async fn check_overdue_work(store: &Store, engine_state: &EngineState) -> Vec<Finding> {
    let overdue = match store.read(|tx| rows::overdue(tx, GRACE)).await {
        Ok(overdue) => overdue,
        Err(error) => {
            let why = error.to_string();
            return CHECKS[5..]
                .iter()
                .map(|check| Finding::failure(check, &why, "see the area of the database"))
                .collect();
        }
    };
    let is_running = matches!(engine_state, EngineState::Running { .. });
    let judge = |check, what: &str, ids: &[String]| match ids {
        [] => Finding::ok(check, format!("no {what} is overdue")),
        ids if is_running => Finding::failure(
            check,
            format!("{what} {} has made no progress for {} s", format_short_list(ids), GRACE.as_secs()),
            "see the engine's log for the cause; restarting the engine is safe",
        ),
        ids => Finding::note(
            check,
            format!("{what} {} waits for an engine", format_short_list(ids)),
            "start the engine: tarn serve",
        ),
    };
    vec![judge("drift.requests", "request", &overdue.requests), judge("drift.jobs", "job", &overdue.jobs)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_failures_while_an_engine_runs() {
        let drift =
            Drift { instances: Differences::from([("i-1".to_owned(), "i-1 exists".to_owned())]), ..Drift::default() };
        let levels = |running| {
            drift_findings(&drift, &running, None).into_iter().map(|finding| finding.level).collect::<Vec<_>>()
        };
        assert_eq!(levels(EngineState::Stopped), [Level::Warning, Level::Ok, Level::Ok, Level::Ok]);
        assert_eq!(levels(EngineState::Running { pid: None })[0], Level::Failure);
    }

    #[test]
    fn overcommitted_pool_is_reported() {
        let pool = |promised_bytes| Some(Pool { free_bytes: 50, taken_bytes: 10, promised_bytes });
        assert_eq!((check_promises(pool(60)).level, check_promises(pool(61)).level), (Level::Ok, Level::Warning));
    }
}
