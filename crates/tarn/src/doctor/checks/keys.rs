//! Secret files: whether they exist, and whether they are private.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use tarn_driver::findings::Finding;

use crate::data::{self, master_key};
use crate::doctor::target::{Target, is_unreadable};

/// Checks the data directory and the key files.
pub(in crate::doctor) fn check_keys(target: &Target) -> Vec<Finding> {
    if is_unreadable(&target.data) {
        let why = format!("this user may not read {}", target.data.display());
        let todo = "run `tarn doctor` as the user that runs the engine";
        return ["keys.data", "keys.secret", "keys.admin"].map(|check| Finding::skipped(check, &why, todo)).into();
    }
    vec![
        check_data_permissions(&target.data),
        check_master_key_file(target),
        check_admin_key_file(&data::admin_key_path(&target.data)),
    ]
}

fn check_data_permissions(data: &Path) -> Finding {
    const CHECK: &str = "keys.data";
    let shown = data.display();
    match std::fs::metadata(data) {
        Ok(found) if found.mode() & 0o077 != 0 => Finding::warning(
            CHECK,
            format!("{shown} is open to other users, and holds the database and keys"),
            format!("run chmod 700 {shown}"),
        ),
        Ok(_) => Finding::ok(CHECK, format!("{shown} is closed to other users")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Finding::note(CHECK, format!("{shown} does not exist yet"), "`tarn serve` creates it")
        }
        Err(error) => {
            Finding::failure(CHECK, format!("cannot read {shown}: {error}"), "check that its disk is mounted")
        }
    }
}

fn check_master_key_file(target: &Target) -> Finding {
    const CHECK: &str = "keys.secret";
    let path = master_key::master_key_path(&target.config);
    let is_new = target.database_file().is_some_and(|file| !file.exists());
    match master_key::read_master_key(&path) {
        Ok(Some(_)) => Finding::ok(CHECK, format!("{} is a master key that only its owner can read", path.display())),
        Ok(None) if is_new => {
            Finding::note(CHECK, "there is no master key yet", "`tarn serve` creates it; back it up then")
        }
        Ok(None) => Finding::failure(
            CHECK,
            format!("the master key is not at {}, so the engine would not start", path.display()),
            "restore it from a backup, or give its path with --secret-key-file",
        ),
        Err(failure) => {
            Finding::failure(CHECK, failure.to_string(), "correct this, because the engine would not start with it")
        }
    }
}

fn check_admin_key_file(path: &Path) -> Finding {
    const CHECK: &str = "keys.admin";
    let (shown, parent) = (path.display(), path.parent().unwrap_or(path));
    match std::fs::metadata(path) {
        Ok(found) if found.mode() & 0o077 != 0 => Finding::warning(
            CHECK,
            format!("{shown} is readable by other users"),
            format!("run chmod 600 {shown}, then `tarn admin key reset`"),
        ),
        Ok(_) => Finding::note(
            CHECK,
            format!("{shown} still holds the administrator's key, readable by its owner only"),
            format!("save it with `tarn login --admin {}`, which removes the file", parent.display()),
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Finding::ok(CHECK, format!("{shown} does not exist; `tarn admin key reset` writes a new key"))
        }
        Err(error) => Finding::skipped(CHECK, format!("cannot read {shown}: {error}"), ""),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tarn_driver::findings::Level;

    use super::*;

    #[test]
    fn open_files_are_reported() {
        let place = tempfile::tempdir().unwrap();
        let key = place.path().join("admin.key");
        assert_eq!(check_admin_key_file(&key).level, Level::Ok);
        std::fs::write(&key, "tp-x").unwrap();
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(check_admin_key_file(&key).level, Level::Warning);
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
        let kept = check_admin_key_file(&key);
        assert!(kept.level == Level::Note && kept.todo.is_some_and(|todo| todo.contains("tarn login --admin")));
        std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(check_data_permissions(place.path()).level, Level::Warning);
    }
}
