//! The file in which `tarn login` keeps engines and their keys. Only its owner can read it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::files;

/// The name of the file.
const FILE: &str = "profiles.toml";

/// The name of the profile of who does not name one.
pub(crate) const DEFAULT: &str = "default";

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Profiles {
    /// The one that is used unless another is named.
    pub(crate) current: Option<String>,
    #[serde(default)]
    pub(crate) profiles: BTreeMap<String, Profile>,
}

/// An engine and who one is there.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Profile {
    pub(crate) engine: String,
    pub(crate) key: String,
}

impl std::fmt::Debug for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profile").field("engine", &self.engine).finish_non_exhaustive()
    }
}

impl Profiles {
    /// Reads the file; nothing where there is none.
    pub(crate) fn read(directory: &Path) -> Result<Profiles> {
        let path = directory.join(FILE);
        toml::from_str(&files::read_if_there(&path)?)
            .map_err(|e| Failure::new(format!("{} is damaged: {}; mend it or remove it", path.display(), e.message())))
    }

    /// Writes the file.
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        let text = toml::to_string(self).map_err(|e| Failure::doing("the profiles cannot be written", e))?;
        files::replace(&directory.join(FILE), &text)
    }

    /// The profile of this name, or the current one, and what it is called. A name that is given must be there.
    pub(crate) fn find<'a>(&'a self, name: Option<&'a str>) -> Result<(&'a str, Option<&'a Profile>)> {
        let called = name.or(self.current.as_deref()).unwrap_or(DEFAULT);
        match (name, self.profiles.get(called)) {
            (Some(name), None) => Err(Failure::not_found(format!(
                "there is no profile {name}; make it with `tarn login --profile {name}`"
            ))),
            (_, found) => Ok((called, found)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn profile(engine: &str) -> Profile {
        Profile { engine: engine.into(), key: "tp-secret".into() }
    }

    #[test]
    fn what_is_written_is_read_again_by_its_owner_only() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("tarn");
        assert_eq!(Profiles::read(&directory).unwrap(), Profiles::default());
        let mut profiles = Profiles { current: Some("home".into()), ..Profiles::default() };
        profiles.profiles.insert("home".into(), profile("http://a"));
        profiles.write(&directory).unwrap();
        assert_eq!(Profiles::read(&directory).unwrap(), profiles);
        assert_eq!(directory.join(FILE).metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
        assert!(!format!("{profiles:?}").contains("secret"));
    }

    #[test]
    fn a_profile_that_is_named_must_be_there() {
        let mut profiles = Profiles::default();
        assert_eq!(profiles.find(None).unwrap(), (DEFAULT, None));
        assert_eq!(profiles.find(Some("work")).unwrap_err().code(), 3);
        profiles.profiles.insert(DEFAULT.into(), profile("http://a"));
        profiles.profiles.insert("work".into(), profile("http://b"));
        assert_eq!(profiles.find(None).unwrap().1.unwrap().engine, "http://a");
        profiles.current = Some("work".into());
        assert_eq!(profiles.find(None).unwrap().1.unwrap().engine, "http://b");
    }

    #[test]
    fn a_damaged_file_is_named() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join(FILE), "current = [").unwrap();
        let failure = Profiles::read(place.path()).unwrap_err().to_string();
        assert!(failure.contains(FILE) && failure.contains("damaged"), "{failure}");
    }
}
