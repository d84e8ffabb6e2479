//! The file of host keys that is ours: `ssh` knows an engine by it and asks nothing.

use std::path::PathBuf;

use crate::failure::Result;
use crate::files;
use crate::logins::Login;
use crate::surroundings::Surroundings;

/// The name of the file.
const FILE: &str = "known_hosts";

/// Writes down the key of the other side, in the place of an older one; where, if there is anything to know. The engine that was
/// asked over the API says which key it has, so it may change as the engine does.
pub(crate) fn remember(surroundings: &Surroundings, login: &Login) -> Result<Option<PathBuf>> {
    let (Some(directory), Some(line)) = (&surroundings.configuration, login.known_line()) else { return Ok(None) };
    let path = directory.join(FILE);
    let before = files::read_if_there(&path)?;
    if before.lines().all(|known| known != line.trim_end()) {
        let prefix = format!("{} ", login.alias());
        let others: String =
            before.lines().filter(|known| !known.starts_with(&prefix)).map(|known| format!("{known}\n")).collect();
        files::replace(&path, &format!("{others}{line}"))?;
    }
    Ok(Some(path))
}
