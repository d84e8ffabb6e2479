//! Which engine the client calls, and with which API key. The command line takes precedence over the environment, the
//! environment over the file `.env` of the current directory (as with the stock client), and that over a profile.

pub(crate) mod profiles;

use std::path::Path;

use crate::commands::Options;
use crate::environment::Environment;
use crate::failure::Result;
use crate::files;
use crate::settings::profiles::{Profile, Profiles};
use crate::transport::addresses;

/// The name of the key in the environment and in `.env`.
const KEY: &str = "TENSORPOOL_KEY";

/// The URL of an engine and the API key for it.
pub(crate) struct Settings {
    pub(crate) engine: String,
    pub(crate) key: Option<Key>,
}

/// An API key and its origin, so that an error about a wrong key can name where it comes from.
#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) secret: String,
    pub(crate) origin: String,
    /// What to do if the engine does not accept the key.
    pub(crate) remedy: &'static str,
}

impl Key {
    /// A key that the user has just typed.
    pub(crate) fn typed(secret: String) -> Self {
        Key { secret, origin: "that was given".to_owned(), remedy: "check where you copied it from" }
    }

    /// The key of the environment variable or of the file `.env`, regardless of profiles.
    pub(crate) fn from_environment(environment: &Environment) -> Option<Key> {
        let variable = environment.key.clone().map(|secret| Key {
            secret,
            origin: format!("in the variable {KEY}"),
            remedy: "set another key, or unset the variable after `tarn login`",
        });
        variable.or_else(|| {
            Some(Key {
                secret: key_in_env_file(&environment.directory, FILE.as_ref())?,
                origin: format!("in the file {FILE} of this directory"),
                remedy: "write another key there, or remove it after `tarn login`",
            })
        })
    }

    fn from_profile(name: &str, profile: &Profile) -> Key {
        let remedy = "save another key with `tarn login`";
        Key { secret: profile.key.clone(), origin: format!("of the profile {name}"), remedy }
    }
}

impl Settings {
    /// Resolves the engine and the key.
    pub(crate) fn resolve(options: &Options, environment: &Environment) -> Result<Settings> {
        let named = options.profile.as_deref().or(environment.profile.as_deref());
        // With engine and key in the environment the profiles are not read, so a damaged file does no harm.
        let is_complete = named.is_none() && environment.engine.is_some() && environment.key.is_some();
        let profiles = match &environment.configuration {
            Some(directory) if !is_complete => Profiles::read(directory)?,
            _ => Profiles::default(),
        };
        let (current, profile) = profiles.select(named)?;
        let said = options.engine.clone().or_else(|| environment.engine.clone().filter(|_| named.is_none()));
        let engine = said.or_else(|| profile.map(|profile| profile.engine.clone()));
        let engine = addresses::check_engine_address(engine.as_deref().unwrap_or(addresses::DEFAULT_ENGINE))?;
        let key = match (named, profile) {
            // A profile that is named explicitly wins over every other key.
            (Some(_), Some(profile)) => Some(Key::from_profile(current, profile)),
            // The key of a profile is sent only to the engine of that profile.
            _ => Key::from_environment(environment).or_else(|| {
                let all = profiles.profiles.iter().map(|(name, profile)| (name.as_str(), profile));
                let mut own = profile.map(|profile| (current, profile)).into_iter().chain(all);
                own.find(|(_, profile)| profile.engine == engine)
                    .map(|(name, profile)| Key::from_profile(name, profile))
            }),
        };
        Ok(Settings { engine, key })
    }
}

/// The file in which the stock client keeps the API key.
const FILE: &str = ".env";

/// The API key in the file `.env` of a directory; `None` for any other file. The first line that begins with the name
/// of the variable counts, as with the stock client.
pub(crate) fn key_in_env_file(directory: &Path, file: &Path) -> Option<String> {
    let path = directory.join(file);
    // Reading something that is not a regular file may never end.
    let is_meant = file == Path::new(FILE) && path.is_file();
    let text = is_meant.then(|| files::read_text(&path).ok()).flatten()?;
    let line = text.lines().find(|line| line.starts_with(KEY))?;
    let (_, value) = line.split_once('=')?;
    let value = value.trim().trim_matches('\'').trim_matches('"');
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The resolved engine and key, given (engine, key) of the environment and the options.
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
        let environment = Environment {
            engine: around.0.map(str::to_owned),
            key: around.1.map(str::to_owned),
            directory: place.path().to_owned(),
            configuration: Some(place.path().to_owned()),
            ..Environment::default()
        };
        let settings = Settings::resolve(options, &environment).unwrap();
        (settings.engine, settings.key.map(|key| key.secret).unwrap_or_default())
    }

    #[test]
    fn precedence_and_profile_keys() {
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
