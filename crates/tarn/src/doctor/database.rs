//! The database: that it can be read, fits this program, is whole, and belongs to the master key.

use std::sync::Arc;
use std::time::Duration;

use tarn_driver::findings::{Finding, Level};
use tarn_model::{Clock as _, Time};
use tarn_store::examine::{self, Health};
use tarn_store::{Error, Store};

use super::patient::{Patient, is_closed};
use super::running::Running;
use crate::environment::SystemClock;
use crate::secret;

/// A log beside the file that is longer than this is not written back any more.
const LONG_LOG: u64 = 1 << 30;

/// Clocks that differ by more than this make leases of replicas doubtful.
const SKEW: Duration = Duration::from_secs(1);

/// Looks at it.
pub(super) async fn look(patient: Arc<Patient>) -> Vec<Finding> {
    const CHECK: &str = "database.opens";
    if let Some(file) = patient.database_file() {
        if is_closed(&patient.data) || file.exists() && std::fs::File::open(&file).is_err() {
            let why = format!("{} is closed to this user", file.display());
            return vec![Finding::skipped(CHECK, why, "run `tarn doctor` as the user that runs the engine")];
        }
        if !file.exists() {
            return vec![Finding::note(
                CHECK,
                format!("there is no database {} yet", file.display()),
                "`tarn serve` makes it",
            )];
        }
    }
    let store = match patient.store().await {
        Ok(store) => store,
        Err(why) => return vec![Finding::failure(CHECK, why, advice(&patient))],
    };
    let health = match examine::health(&store).await {
        Ok(health) => health,
        Err(error) => return vec![Finding::failure(CHECK, error.to_string(), advice(&patient))],
    };
    let mut findings = vec![Finding::ok(CHECK, health.database.clone())];
    let version = store.read(examine::version).await;
    let is_current = matches!(version, Ok(Some(version)) if version == examine::SCHEMA_VERSION);
    findings.push(schema(version, &patient.running));
    match patient.database_file() {
        Some(_) => findings.push(integrity(&health)),
        None => findings.extend(server(&health, SystemClock.now())),
    }
    if is_current {
        findings.push(master_key(&patient, &store).await);
    }
    findings
}

fn advice(patient: &Patient) -> &'static str {
    match patient.database_file() {
        Some(_) => "stop the engine, keep a copy of tarn.db with what lies beside it, and bring a backup back",
        None => "see that the server runs and takes this user: psql with the same address must work",
    }
}

fn schema(version: Result<Option<i64>, Error>, running: &Running) -> Finding {
    const CHECK: &str = "database.schema";
    let known = examine::SCHEMA_VERSION;
    match version {
        Ok(Some(found)) if found == known => Finding::ok(CHECK, format!("version {found}, which this program knows")),
        Ok(Some(found)) if found > known => Finding::failure(
            CHECK,
            format!("the database is at version {found}, this program knows {known}: it would not start"),
            "run the newer program that has brought it there",
        ),
        Ok(Some(found)) => {
            let found = format!("the database is at version {found}, this program knows {known}");
            match running {
                Running::Here { .. } => {
                    Finding::warning(CHECK, format!("{found}: the engine is older"), "restart it with this program")
                }
                _ => Finding::note(CHECK, found, "`tarn serve` brings it up to date; make a copy before"),
            }
        }
        Ok(None) => Finding::note(CHECK, "nothing was made in the database yet", "`tarn serve` does that"),
        Err(error) => Finding::failure(CHECK, error.to_string(), "look at the database with its own tools"),
    }
}

fn integrity(health: &Health) -> Finding {
    const CHECK: &str = "database.integrity";
    match &health.faults {
        None => Finding::skipped(
            CHECK,
            "the database is too large to be looked through quickly",
            "pragma quick_check on a copy",
        ),
        Some(faults) if !faults.is_empty() => Finding::failure(
            CHECK,
            format!("the database is damaged: {}", faults.join("; ")),
            "stop the engine, keep a copy, and bring a backup back; sqlite3's .recover saves what can be saved",
        ),
        Some(_) if health.log_bytes > LONG_LOG => Finding::warning(
            CHECK,
            format!(
                "the log beside it has grown to {} MB: something keeps it from being written back",
                health.log_bytes / 1_000_000
            ),
            "look who has tarn.db open (lsof), and restart the engine",
        ),
        Some(_) => Finding::ok(CHECK, format!("no damage; the log beside it has {} KB", health.log_bytes / 1000)),
    }
}

fn server(health: &Health, now: Time) -> Vec<Finding> {
    let right = if health.is_byte_order == Some(false) {
        Finding::failure(
            "database.server",
            "the database does not sort by bytes, and lists need that",
            "createdb --template template0 --lc-collate C --lc-ctype C --encoding UTF8",
        )
    } else if health.refused.is_empty() {
        Finding::ok("database.server", "it sorts by bytes, and this user may do everything here")
    } else {
        let found = format!("this user may not use: {}", health.refused.join(", "));
        Finding::failure(
            "database.server",
            found,
            "make it the owner: alter database … owner to …; alter table … owner to …",
        )
    };
    let skew = health.now.map(|theirs| theirs.until(now).max(now.until(theirs))).unwrap_or_default();
    let clock = match skew > SKEW {
        true => Finding::warning(
            "database.clock",
            format!("its clock differs from this machine's by {:.1} s", skew.as_secs_f64()),
            "keep both right with chrony: leases are compared with them",
        ),
        false => Finding::ok("database.clock", "its clock agrees with this machine's"),
    };
    vec![right, clock]
}

async fn master_key(patient: &Patient, store: &Store) -> Finding {
    const CHECK: &str = "database.master_key";
    let kept = Patient::kept(store, secret::REMEMBERED).await;
    let own = secret::read(&secret::path(&patient.config)).ok().flatten().map(|own| own.fingerprint());
    match (kept, own) {
        (Ok(Some(kept)), Some(own)) if kept == own => Finding::ok(CHECK, "the database belongs to the master key"),
        (Ok(Some(_)), Some(_)) => Finding::failure(
            CHECK,
            "the database belongs to another master key: the engine would not start",
            "give the right one as --secret-key-file",
        ),
        (Ok(None), _) => Finding::of(CHECK, Level::Note, "the database belongs to no master key yet", ""),
        (Ok(Some(_)), None) => {
            Finding::of(CHECK, Level::Skipped, "there is no master key to compare", "look at keys.secret")
        }
        (Err(why), _) => Finding::failure(CHECK, why, "look at database.schema"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_damage_are_told() {
        let known = examine::SCHEMA_VERSION;
        let level = |version| schema(Ok(version), &Running::Nowhere).level;
        assert_eq!(
            [level(Some(known)), level(Some(known + 1)), level(Some(known - 1)), level(None)],
            [Level::Ok, Level::Failure, Level::Note, Level::Note]
        );
        assert_eq!(schema(Ok(Some(known - 1)), &Running::Here { pid: None }).level, Level::Warning);
        let damaged = Health { faults: Some(vec!["row 3 missing from index".into()]), ..Health::default() };
        assert_eq!(integrity(&damaged).level, Level::Failure);
        assert_eq!(integrity(&Health { faults: Some(Vec::new()), ..Health::default() }).level, Level::Ok);
        assert_eq!(integrity(&Health::default()).level, Level::Skipped);
    }

    #[test]
    fn a_server_that_is_not_right_is_told() {
        let now = Time::from_micros(1_794_774_000_000_000);
        let health = Health { is_byte_order: Some(true), now: Some(now), ..Health::default() };
        assert!(server(&health, now).iter().all(|finding| finding.level == Level::Ok));
        let wrong = Health { is_byte_order: Some(false), now: Some(now.after(Duration::from_secs(5))), ..health };
        let levels: Vec<_> = server(&wrong, now).into_iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [Level::Failure, Level::Warning]);
    }
}
