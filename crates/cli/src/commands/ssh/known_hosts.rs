//! The client's own `known_hosts` file, so that `ssh` verifies the host key without asking.

use std::path::PathBuf;

use crate::commands::ssh::target::SshTarget;
use crate::environment::Environment;
use crate::failure::Result;
use crate::files;

const FILE: &str = "known_hosts";

/// Saves the host key of a target, replacing an older one, and returns the path of the file; `None` without a key. The
/// engine states its host key over the API, so a changed key is accepted.
pub(crate) fn save_host_key(environment: &Environment, target: &SshTarget) -> Result<Option<PathBuf>> {
    let (Some(directory), Some(line)) = (&environment.configuration, target.known_hosts_line()) else {
        return Ok(None);
    };
    let path = directory.join(FILE);
    let before = files::read_if_exists(&path)?;
    if before.lines().all(|known| known != line.trim_end()) {
        let prefix = format!("{} ", target.host_key_alias());
        let others: String =
            before.lines().filter(|known| !known.starts_with(&prefix)).map(|known| format!("{known}\n")).collect();
        files::replace_file(&path, &format!("{others}{line}"))?;
    }
    Ok(Some(path))
}
