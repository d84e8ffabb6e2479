//! Which engine is spoken to, and with which key: what is said on the command line comes before the environment, that before the
//! file `.env` of the directory, as with the stock client, and that before a profile.

use std::path::Path;

use crate::commands::Options;
use crate::failure::Result;
use crate::profiles::{Profile, Profiles};
use crate::surroundings::Surroundings;
use crate::{addresses, files};

/// The name of the key in the environment and in `.env`.
const KEY: &str = "TENSORPOOL_KEY";

/// An engine and the key for it.
pub(crate) struct Settings {
    pub(crate) engine: String,
    pub(crate) key: Option<Key>,
}

/// A key, and where it is from, so that who has a wrong one knows where to look.
#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) secret: String,
    pub(crate) origin: String,
    /// What to do about it if nobody knows it.
    pub(crate) remedy: &'static str,
}

impl Key {
    /// One that somebody has just typed.
    pub(crate) fn given(secret: String) -> Self {
        Key { secret, origin: "that was given".to_owned(), remedy: "look where you have it from" }
    }

    /// The one that is around, whatever profiles there are: of the environment, or of the directory.
    pub(crate) fn around(surroundings: &Surroundings) -> Option<Key> {
        let variable = surroundings.key.clone().map(|secret| Key {
            secret,
            origin: format!("in the variable {KEY}"),
            remedy: "set another, or unset it after `tarn login`",
        });
        variable.or_else(|| {
            Some(Key {
                secret: key_in(&surroundings.directory, FILE.as_ref())?,
                origin: format!("in the file {FILE} of this directory"),
                remedy: "write another there, or remove it after `tarn login`",
            })
        })
    }

    fn of_profile(name: &str, profile: &Profile) -> Key {
        let remedy = "give another with `tarn login`";
        Key { secret: profile.key.clone(), origin: format!("of the profile {name}"), remedy }
    }
}

impl Settings {
    /// Finds them.
    pub(crate) fn find(options: &Options, surroundings: &Surroundings) -> Result<Settings> {
        let named = options.profile.as_deref().or(surroundings.profile.as_deref());
        // Who brings everything along needs nothing from there, whatever state it is in.
        let is_complete = named.is_none() && surroundings.engine.is_some() && surroundings.key.is_some();
        let profiles = match &surroundings.configuration {
            Some(directory) if !is_complete => Profiles::read(directory)?,
            _ => Profiles::default(),
        };
        let (current, profile) = profiles.find(named)?;
        let said = options.engine.clone().or_else(|| surroundings.engine.clone().filter(|_| named.is_none()));
        let engine = said.or_else(|| profile.map(|profile| profile.engine.clone()));
        let engine = addresses::checked(engine.as_deref().unwrap_or(addresses::DEFAULT))?;
        let key = match (named, profile) {
            // Whoever names a profile means its key, whatever else there is.
            (Some(_), Some(profile)) => Some(Key::of_profile(current, profile)),
            // Nobody else's engine gets it.
            _ => Key::around(surroundings).or_else(|| {
                let all = profiles.profiles.iter().map(|(name, profile)| (name.as_str(), profile));
                let mut own = profile.map(|profile| (current, profile)).into_iter().chain(all);
                own.find(|(_, profile)| profile.engine == engine).map(|(name, profile)| Key::of_profile(name, profile))
            }),
        };
        Ok(Settings { engine, key })
    }
}

/// The file in which the stock client keeps the key.
const FILE: &str = ".env";

/// The key in a file of a directory, if that is the one for keys: the first line that begins with its name counts, as with the
/// stock client.
pub(crate) fn key_in(directory: &Path, file: &Path) -> Option<String> {
    let path = directory.join(file);
    // What is no file may never end.
    let is_meant = file == Path::new(FILE) && path.is_file();
    let text = is_meant.then(|| files::read(&path).ok()).flatten()?;
    let line = text.lines().find(|line| line.starts_with(KEY))?;
    let (_, value) = line.split_once('=')?;
    let value = value.trim().trim_matches('\'').trim_matches('"');
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which engine is asked with which key, given (engine, key) of the environment and the options.
    fn found(around: (Option<&str>, Option<&str>), options: &Options, env_file: Option<&str>) -> (String, String) {
        let place = tempfile::tempdir().unwrap();
        if let Some(text) = env_file {
            std::fs::write(place.path().join(".env"), text).unwrap();
        }
        let mut profiles = Profiles { current: Some("home".into()), ..Profiles::default() };
        for (name, engine) in [("home", "http://home"), ("work", "http://work")] {
            profiles.profiles.insert(name.into(), Profile { engine: engine.into(), key: format!("{name}-key") });
        }
        profiles.write(place.path()).unwrap();
        let surroundings = Surroundings {
            engine: around.0.map(str::to_owned),
            key: around.1.map(str::to_owned),
            directory: place.path().to_owned(),
            configuration: Some(place.path().to_owned()),
            ..Surroundings::default()
        };
        let settings = Settings::find(options, &surroundings).unwrap();
        (settings.engine, settings.key.map(|key| key.secret).unwrap_or_default())
    }

    #[test]
    fn the_nearest_counts_and_a_key_goes_to_its_own_engine() {
        let (engine, profile) = (
            |engine: &str| Options { engine: Some(engine.into()), ..Options::default() },
            |name: &str| Options { profile: Some(name.into()), ..Options::default() },
        );
        let pair = |engine: &str, key: &str| (engine.to_owned(), key.to_owned());
        let nothing = Options::default();
        assert_eq!(found((None, None), &nothing, None), pair("http://home", "home-key"));
        assert_eq!(found((None, Some("env")), &nothing, None), pair("http://home", "env"));
        assert_eq!(found((None, None), &nothing, Some("X=1\nTENSORPOOL_KEY='file'\n")), pair("http://home", "file"));
        assert_eq!(found((None, Some("env")), &nothing, Some("TENSORPOOL_KEY=file")), pair("http://home", "env"));
        assert_eq!(found((Some("http://x"), None), &nothing, None), pair("http://x", ""));
        assert_eq!(found((None, None), &engine("http://work/"), None), pair("http://work", "work-key"));
        assert_eq!(found((Some("http://x"), Some("env")), &profile("work"), None), pair("http://work", "work-key"));
    }
}
