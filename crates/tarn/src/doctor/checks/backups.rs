//! The last backup: whether there is one, how old it is, and whether it is still there and intact.

use std::time::Duration;

use tarn_driver::findings::Finding;
use tarn_model::Clock as _;

use crate::backup::record::LastBackup;
use crate::doctor::target::Target;
use crate::environment::SystemClock;

/// An older backup means that a timer does not run any more.
const MAX_AGE: Duration = Duration::from_secs(8 * 24 * 3600);

/// Checks the last backup.
pub(in crate::doctor) fn check_backups(target: &Target) -> Vec<Finding> {
    vec![match LastBackup::read(&target.data) {
        Ok(last) => check_last(last, |last| SystemClock.now().until(last.created())),
        Err(error) => Finding::skipped(CHECK, format!("the record of the last backup cannot be read: {error}"), ""),
    }]
}

const CHECK: &str = "backups.age";

fn check_last(last: Option<LastBackup>, age: impl Fn(&LastBackup) -> Duration) -> Finding {
    let Some(last) = last else {
        return Finding::note(
            CHECK,
            "no backup of this installation was made",
            "run `tarn admin backup` with a timer (docs/operating/backups.md)",
        );
    };
    let (name, place, hours) = (&last.name, last.directory.display(), age(&last).as_secs() / 3600);
    let found = format!("the last backup is {name} in {place}, made {hours} h ago");
    if let Some(fault) = &last.damaged {
        return Finding::warning(CHECK, format!("{found}, and it is damaged: {fault}"), "make another backup");
    }
    // A place that is not mounted at the moment is not looked for.
    if last.directory.is_dir() && !last.directory.join(name).is_dir() {
        return Finding::warning(CHECK, format!("{found}, and it is not there any more"), "make another backup");
    }
    if age(&last) > MAX_AGE {
        return Finding::warning(CHECK, found, "find out why there is no newer one, and make another backup");
    }
    Finding::ok(CHECK, found)
}

#[cfg(test)]
mod tests {
    use tarn_driver::findings::Level;

    use super::*;

    #[test]
    fn age_and_presence_are_reported() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("elsewhere");
        let last = LastBackup { name: "b".into(), directory, created_us: 0, damaged: None };
        let level =
            |last: Option<LastBackup>, hours: u64| check_last(last, |_| Duration::from_secs(hours * 3600)).level;
        assert_eq!(level(None, 0), Level::Note);
        assert_eq!([level(Some(last.clone()), 1), level(Some(last.clone()), 24 * 9)], [Level::Ok, Level::Warning]);
        let damaged = LastBackup { damaged: Some("tarn.db was changed".into()), ..last.clone() };
        assert_eq!(level(Some(damaged), 1), Level::Warning);
        let removed = LastBackup { directory: place.path().to_owned(), ..last };
        assert_eq!(level(Some(removed.clone()), 1), Level::Warning);
        std::fs::create_dir(place.path().join("b")).unwrap();
        assert_eq!(level(Some(removed), 1), Level::Ok);
    }
}
