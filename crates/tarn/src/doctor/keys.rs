//! Files that are secret: that they are there, and that nobody else may read them.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use tarn_driver::findings::{Finding, Level};

use super::patient::{Patient, is_closed};
use crate::{data, secret};

/// Looks at all of them.
pub(super) fn look(patient: &Patient) -> Vec<Finding> {
    if is_closed(&patient.data) {
        let why = format!("{} is closed to this user", patient.data.display());
        let todo = "run `tarn doctor` as the user that runs the engine";
        return ["keys.data", "keys.secret", "keys.admin"].map(|check| Finding::skipped(check, &why, todo)).into();
    }
    vec![directory(&patient.data), master(patient), admin(&data::key_path(&patient.data))]
}

fn directory(data: &Path) -> Finding {
    const CHECK: &str = "keys.data";
    let shown = data.display();
    match std::fs::metadata(data) {
        Ok(found) if found.mode() & 0o077 != 0 => Finding::warning(
            CHECK,
            format!("{shown} may be entered by others: it holds the database and keys"),
            format!("chmod 700 {shown}"),
        ),
        Ok(_) => Finding::ok(CHECK, format!("{shown} is closed to others")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Finding::note(CHECK, format!("there is no {shown} yet"), "`tarn serve` makes it")
        }
        Err(error) => {
            Finding::failure(CHECK, format!("{shown} cannot be looked at: {error}"), "see that its disk is mounted")
        }
    }
}

fn master(patient: &Patient) -> Finding {
    const CHECK: &str = "keys.secret";
    let path = secret::path(&patient.config);
    let is_new = patient.database_file().is_some_and(|file| !file.exists());
    match secret::read(&path) {
        Ok(Some(_)) => Finding::ok(CHECK, format!("{} is a master key that only its owner reads", path.display())),
        Ok(None) if is_new => {
            Finding::note(CHECK, "there is no master key yet", "`tarn serve` makes it; back it up then")
        }
        Ok(None) => Finding::failure(
            CHECK,
            format!("the master key is not at {}, and the engine would not start", path.display()),
            "bring it back from a copy, or name its place as --secret-key-file",
        ),
        Err(failure) => Finding::failure(CHECK, failure.to_string(), "the engine would not start with it"),
    }
}

fn admin(path: &Path) -> Finding {
    const CHECK: &str = "keys.admin";
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(found) if found.mode() & 0o077 != 0 => Finding::warning(
            CHECK,
            format!("{shown} may be read by others"),
            format!("chmod 600 {shown}, then `tarn admin key reset`"),
        ),
        Ok(_) => Finding::ok(CHECK, format!("only its owner reads {shown}")),
        Err(error) if error.kind() == ErrorKind::NotFound => Finding::of(
            CHECK,
            Level::Note,
            format!("there is no {shown}"),
            "the first start of `tarn serve` makes it; `tarn admin key reset` makes another",
        ),
        Err(error) => Finding::skipped(CHECK, format!("{shown} cannot be looked at: {error}"), ""),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_others_may_read_is_told() {
        let place = tempfile::tempdir().unwrap();
        let key = place.path().join("admin.key");
        assert_eq!(admin(&key).level, Level::Note);
        std::fs::write(&key, "tp-x").unwrap();
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(admin(&key).level, Level::Warning);
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(admin(&key).level, Level::Ok);
        std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(directory(place.path()).level, Level::Warning);
    }
}
