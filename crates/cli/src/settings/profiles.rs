//! The file with the profiles of `tarn login`: engines and their API keys. It is readable for its owner only.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::files;

const FILE: &str = "profiles.toml";

/// The profile that is used when none is named.
pub(crate) const DEFAULT_PROFILE: &str = "default";

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Profiles {
    /// The profile that is used unless another one is named.
    pub(crate) current: Option<String>,
    #[serde(default)]
    pub(crate) profiles: BTreeMap<String, Profile>,
}

/// The URL of an engine and an API key for it.
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
    /// Reads the file; no profiles if it does not exist.
    pub(crate) fn read(directory: &Path) -> Result<Profiles> {
        let path = directory.join(FILE);
        toml::from_str(&files::read_if_exists(&path)?).map_err(|e| {
            Failure::new(format!("{} is damaged: {}; repair it or remove it", path.display(), e.message()))
        })
    }

    /// Writes the file.
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        let text = toml::to_string(self).map_err(|e| Failure::with_cause("cannot write the profiles", e))?;
        files::replace_file(&directory.join(FILE), &text)
    }

    /// Selects the named profile, or the current one, and returns its name. A profile that is named must exist.
    pub(crate) fn select<'a>(&'a self, name: Option<&'a str>) -> Result<(&'a str, Option<&'a Profile>)> {
        let called = name.or(self.current.as_deref()).unwrap_or(DEFAULT_PROFILE);
        match (name, self.profiles.get(called)) {
            (Some(name), None) => Err(Failure::not_found(format!(
                "there is no profile {name}; create it with `tarn login --profile {name}`"
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
    fn profiles_round_trip_in_a_private_file() {
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
    fn named_profile_must_exist() {
        let mut profiles = Profiles::default();
        assert_eq!(profiles.select(None).unwrap(), (DEFAULT_PROFILE, None));
        assert_eq!(profiles.select(Some("work")).unwrap_err().code(), 3);
        profiles.profiles.insert(DEFAULT_PROFILE.into(), profile("http://a"));
        profiles.profiles.insert("work".into(), profile("http://b"));
        assert_eq!(profiles.select(None).unwrap().1.unwrap().engine, "http://a");
        profiles.current = Some("work".into());
        assert_eq!(profiles.select(None).unwrap().1.unwrap().engine, "http://b");
    }

    #[test]
    fn damaged_file_is_named() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join(FILE), "current = [").unwrap();
        let failure = Profiles::read(place.path()).unwrap_err().to_string();
        assert!(failure.contains(FILE) && failure.contains("damaged"), "{failure}");
    }
}
