//! The database: whether it can be read, has the right schema, is undamaged, and belongs to the master key.

use std::sync::Arc;
use std::time::Duration;

use tarn_driver::findings::{Finding, Level};
use tarn_driver::local::installation as local;
use tarn_model::clock_jumps::Jump;
use tarn_model::host_binding::DriverBinding;
use tarn_model::{Clock as _, Time};
use tarn_store::examine::{self, Health};
use tarn_store::{Error, Store, clock, installation};

use crate::data::master_key;
use crate::doctor::probes::engine_state::EngineState;
use crate::doctor::target::{Target, is_unreadable};
use crate::environment::SystemClock;

/// A longer write-ahead log means that checkpoints fail.
const LONG_LOG_BYTES: u64 = 1 << 30;

/// A larger difference between clocks makes the leases of replicas unreliable.
const MAX_SKEW: Duration = Duration::from_secs(1);

/// The check that compares the binding of the database with the data directory.
const HOST_CHECK: &str = "database.host";

/// How long a jump of the clock is reported.
const RECENT_JUMPS: Duration = Duration::from_secs(7 * 24 * 3600);

/// Checks the database.
pub(in crate::doctor) async fn check_database(target: Arc<Target>) -> Vec<Finding> {
    const CHECK: &str = "database.opens";
    if let Some(file) = target.database_file() {
        if is_unreadable(&target.data) || file.exists() && std::fs::File::open(&file).is_err() {
            let why = format!("this user may not read {}", file.display());
            return vec![Finding::skipped(CHECK, why, "run `tarn doctor` as the user that runs the engine")];
        }
        if !file.exists() {
            return vec![Finding::note(
                CHECK,
                format!("the database {} does not exist yet", file.display()),
                "`tarn serve` creates it",
            )];
        }
    }
    let store = match target.open_store().await {
        Ok(store) => store,
        Err(why) => return vec![Finding::failure(CHECK, why, repair_advice(&target))],
    };
    let health = match examine::health(&store).await {
        Ok(health) => health,
        Err(error) => return vec![Finding::failure(CHECK, error.to_string(), repair_advice(&target))],
    };
    let mut findings = vec![Finding::ok(CHECK, health.database.clone())];
    let version = store.read(examine::version).await;
    let is_current = matches!(version, Ok(Some(version)) if version == examine::SCHEMA_VERSION);
    findings.push(match store.read(examine::refusal).await {
        Ok(Some(why)) => Finding::failure("database.schema", "the engine would not start with this database", why),
        Ok(None) => check_schema(version, &target.engine_state),
        Err(error) => check_schema(Err(error), &target.engine_state),
    });
    match target.database_file() {
        Some(_) => findings.push(check_integrity(&health)),
        None => findings.extend(check_server(&health, SystemClock.now())),
    }
    if is_current && target.database_file().is_none() && target.is_local() {
        findings.push(check_host(&target, &store).await);
    }
    if is_current {
        findings.push(check_master_key(&target, &store).await);
        findings.push(match store.read(|tx| Ok::<_, Error>((clock::anchor(tx)?, tx.now()))).await {
            Ok((anchor, now)) => check_jumps(anchor.jumps(), now),
            Err(error) => Finding::failure("database.clock_jumps", error.to_string(), "see database.schema"),
        });
    }
    findings
}

fn repair_advice(target: &Target) -> &'static str {
    match target.database_file() {
        Some(_) => "stop the engine, copy tarn.db and the files beside it, and restore a backup",
        None => "check that the server runs and accepts this user; psql with the same URL must work",
    }
}

fn check_schema(version: Result<Option<i64>, Error>, engine_state: &EngineState) -> Finding {
    const CHECK: &str = "database.schema";
    let known = examine::SCHEMA_VERSION;
    match version {
        Ok(Some(found)) if found == known => Finding::ok(CHECK, format!("version {found}, as this program expects")),
        Ok(Some(found)) if found > known => Finding::failure(
            CHECK,
            format!("the database has version {found}, this program knows {known}, so the engine would not start"),
            "run the newer program that upgraded it",
        ),
        Ok(Some(found)) => {
            let found = format!("the database has version {found}, this program knows {known}");
            match engine_state {
                EngineState::Running { .. } => Finding::warning(
                    CHECK,
                    format!("{found}; the running engine is older"),
                    "restart the engine with this program",
                ),
                _ => Finding::note(CHECK, found, "`tarn serve` upgrades it; back it up first"),
            }
        }
        Ok(None) => Finding::note(CHECK, "the database is empty", "`tarn serve` creates its tables"),
        Err(error) => Finding::failure(CHECK, error.to_string(), "examine the database with its own tools"),
    }
}

fn check_integrity(health: &Health) -> Finding {
    const CHECK: &str = "database.integrity";
    match &health.faults {
        None => {
            Finding::skipped(CHECK, "the database is too large for a quick check", "run pragma quick_check on a copy")
        }
        Some(faults) if !faults.is_empty() => Finding::failure(
            CHECK,
            format!("the database is damaged: {}", faults.join("; ")),
            "stop the engine, copy the database, and restore a backup; sqlite3's .recover may save more",
        ),
        Some(_) if health.log_bytes > LONG_LOG_BYTES => Finding::warning(
            CHECK,
            format!(
                "the write-ahead log has grown to {} MB, because a process prevents checkpoints",
                health.log_bytes / 1_000_000
            ),
            "find the processes that have tarn.db open (lsof), and restart the engine",
        ),
        Some(_) => Finding::ok(CHECK, format!("no damage; the write-ahead log has {} KB", health.log_bytes / 1000)),
    }
}

fn check_server(health: &Health, now: Time) -> Vec<Finding> {
    let right = if health.is_byte_order == Some(false) {
        Finding::failure(
            "database.server",
            "the database does not sort by bytes, which lists require",
            "create it again: createdb --template template0 --lc-collate C --lc-ctype C --encoding UTF8",
        )
    } else if health.refused.is_empty() {
        Finding::ok("database.server", "it sorts by bytes, and this user has all permissions")
    } else {
        let found = format!("this user lacks permissions on: {}", health.refused.join(", "));
        Finding::failure(
            "database.server",
            found,
            "make the user the owner: alter database … owner to …; alter table … owner to …",
        )
    };
    let skew = health.now.map(|theirs| theirs.until(now).max(now.until(theirs))).unwrap_or_default();
    let clock = if skew > MAX_SKEW {
        Finding::warning(
            "database.clock",
            format!("its clock differs from the clock of this host by {:.1} s", skew.as_secs_f64()),
            "synchronise both with chrony, because leases depend on them",
        )
    } else {
        Finding::ok("database.clock", "its clock agrees with the clock of this host")
    };
    vec![right, clock]
}

/// Whether the database belongs to the local driver of this data directory.
async fn check_host(target: &Target, store: &Store) -> Finding {
    let own = match local::existing_id(&target.data) {
        Ok(own) => own.unwrap_or_default(),
        Err(error) => {
            return Finding::skipped(HOST_CHECK, format!("cannot read the id of the installation: {error}"), "");
        }
    };
    match store.read(installation::driver_binding).await {
        Ok(Some(DriverBinding::Fake)) => Finding::failure(
            HOST_CHECK,
            "the database belongs to the fake driver",
            "give the local driver a database of its own, or stop all engines and run: tarn admin driver adopt",
        ),
        Ok(Some(DriverBinding::Host(bound))) => compare_hosts(Some(&bound.place.installation), &own),
        Ok(None) => compare_hosts(None, &own),
        Err(error) => Finding::failure(HOST_CHECK, error.to_string(), "see database.schema"),
    }
}

fn compare_hosts(bound: Option<&str>, own: &str) -> Finding {
    match bound {
        None => {
            Finding::note(HOST_CHECK, "the database does not belong to a host yet", "`tarn serve` binds it to this one")
        }
        Some(bound) if bound == own => Finding::ok(HOST_CHECK, "the database belongs to the local driver of this host"),
        Some(bound) => Finding::failure(
            HOST_CHECK,
            format!(
                "the database belongs to installation {bound} of the local driver, and this is not its data directory"
            ),
            "give the right --data, or a database of its own; if the other is lost for ever: tarn admin driver adopt",
        ),
    }
}

/// Reports jumps of the clock that the engine followed.
fn check_jumps(jumps: &[Jump], now: Time) -> Finding {
    const CHECK: &str = "database.clock_jumps";
    // The clock of this host may have been set back since.
    let is_recent = |jump: &&Jump| now.before(RECENT_JUMPS).as_micros() <= jump.at_us;
    let recent: Vec<_> = jumps.iter().filter(is_recent).map(describe_jump).collect();
    if recent.is_empty() {
        return Finding::ok(CHECK, "the clock did not jump within the last week");
    }
    Finding::warning(
        CHECK,
        format!("the clock of the engine's host jumped: {}; deadlines were moved with it", recent.join(", ")),
        "let chrony or systemd-timesyncd synchronise the clock, and start the engine after it (time-sync.target)",
    )
}

fn describe_jump(jump: &Jump) -> String {
    let direction = if jump.by_us > 0 { "forward" } else { "back" };
    let seconds = jump.by_us.unsigned_abs() / 1_000_000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let by = match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, hours, minutes) => format!("{hours}h {minutes}m"),
        (days, hours, _) => format!("{days}d {hours}h"),
    };
    format!("{direction} by {by} to {}", Time::from_micros(jump.at_us))
}

async fn check_master_key(target: &Target, store: &Store) -> Finding {
    const CHECK: &str = "database.master_key";
    let kept = Target::installation_value(store, master_key::FINGERPRINT_NAME).await;
    let own = master_key::read_master_key(&master_key::master_key_path(&target.config))
        .ok()
        .flatten()
        .map(|own| own.fingerprint());
    match (kept, own) {
        (Ok(Some(kept)), Some(own)) if kept == own => Finding::ok(CHECK, "the database belongs to the master key"),
        (Ok(Some(_)), Some(_)) => Finding::failure(
            CHECK,
            "the database belongs to another master key, so the engine would not start",
            "give the right file with --secret-key-file",
        ),
        (Ok(None), _) => Finding::of(CHECK, Level::Note, "the database is not bound to a master key yet", ""),
        (Ok(Some(_)), None) => {
            Finding::of(CHECK, Level::Skipped, "there is no master key to compare with", "see keys.secret")
        }
        (Err(why), _) => Finding::failure(CHECK, why, "see database.schema"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_damage_are_reported() {
        let known = examine::SCHEMA_VERSION;
        let level = |version| check_schema(Ok(version), &EngineState::Stopped).level;
        assert_eq!(
            [level(Some(known)), level(Some(known + 1)), level(Some(known - 1)), level(None)],
            [Level::Ok, Level::Failure, Level::Note, Level::Note]
        );
        assert_eq!(check_schema(Ok(Some(known - 1)), &EngineState::Running { pid: None }).level, Level::Warning);
        let damaged = Health { faults: Some(vec!["row 3 missing from index".into()]), ..Health::default() };
        assert_eq!(check_integrity(&damaged).level, Level::Failure);
        assert_eq!(check_integrity(&Health { faults: Some(Vec::new()), ..Health::default() }).level, Level::Ok);
        assert_eq!(check_integrity(&Health::default()).level, Level::Skipped);
    }

    #[test]
    fn database_of_another_host_is_reported() {
        let level = |bound| compare_hosts(bound, "abc123").level;
        assert_eq!(
            [level(None), level(Some("abc123")), level(Some("def456"))],
            [Level::Note, Level::Ok, Level::Failure]
        );
    }

    #[test]
    fn jumps_are_reported() {
        let day = 86_400_000_000;
        let now = Time::from_micros(20_000 * day);
        let jump = |by_us, ago| Jump { at_us: now.as_micros() - ago, by_us };
        assert_eq!(check_jumps(&[], now).level, Level::Ok);
        assert_eq!(check_jumps(&[jump(day, 8 * day)], now).level, Level::Ok);
        let found = check_jumps(&[jump(day, 8 * day), jump(2 * day + 5, day), jump(-90_000_000, day)], now);
        assert_eq!(found.level, Level::Warning);
        let text = format!("{found:?}");
        assert!(text.contains("forward by 2d 0h to ") && text.contains("back by 0h 1m to "), "{text}");
        assert_eq!(text.matches(" by ").count(), 2, "{text}");
    }

    #[test]
    fn server_problems_are_reported() {
        let now = Time::from_micros(1_794_774_000_000_000);
        let health = Health { is_byte_order: Some(true), now: Some(now), ..Health::default() };
        assert!(check_server(&health, now).iter().all(|finding| finding.level == Level::Ok));
        let wrong = Health { is_byte_order: Some(false), now: Some(now.after(Duration::from_secs(5))), ..health };
        let levels: Vec<_> = check_server(&wrong, now).into_iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [Level::Failure, Level::Warning]);
    }
}
