//! `tarn login`: tries an API key, and saves it with the URL of its engine.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::commands::Options;
use crate::environment::Environment;
use crate::failure::{Failure, Result};
use crate::settings::profiles::{DEFAULT_PROFILE, Profile, Profiles};
use crate::settings::{Key, Settings};
use crate::terminal::interrupts::Interrupts;
use crate::terminal::output::{self, sanitize_line, text_field};
use crate::terminal::prompts;
use crate::transport::addresses;
use crate::transport::api_client::ApiClient;

/// More than any key has.
const MAX_KEY_BYTES: u64 = 4096;

#[derive(Args, Debug)]
pub struct Login {
    /// Read the API key from standard input instead of asking for it
    #[arg(long)]
    stdin: bool,
    /// Use the administrator's key in a data directory of `tarn serve`, and remove its file once the key is saved
    #[arg(long, value_name = "DIR", conflicts_with = "stdin")]
    admin: Option<PathBuf>,
}

pub(crate) async fn run_login(
    login: Login,
    options: &Options,
    environment: &Environment,
    interrupts: Interrupts,
) -> Result<()> {
    let directory = environment.configuration.as_deref();
    let directory = directory.ok_or_else(|| Failure::new("there is no configuration directory; set HOME"))?;
    let mut profiles = Profiles::read(directory)?;
    let name = options.profile.as_deref().or(environment.profile.as_deref()).unwrap_or(DEFAULT_PROFILE).to_owned();
    let known = profiles.profiles.get(&name).map(|profile| profile.engine.clone());
    let engine = options.engine.clone().or_else(|| environment.engine.clone()).or(known);
    let engine = addresses::check_engine_address(engine.as_deref().unwrap_or(addresses::DEFAULT_ENGINE))?;
    let key_file = login.admin.as_deref().map(|data| data.join("admin.key"));
    let key = match (&key_file, login.stdin) {
        (Some(file), _) => read_key_file(file)?,
        (None, true) => prompts::read_stdin_line(&interrupts).await?,
        (None, false) if environment.has_input && !options.no_input => {
            prompts::read_secret(&interrupts, format!("API key for {engine}: ")).await?
        }
        (None, false) => {
            return Err(Failure::usage("this is not a terminal; pass the API key to `tarn login --stdin`"));
        }
    };
    if key.is_empty() {
        return Err(Failure::usage("no API key was given"));
    }
    let trial = ApiClient::new(
        Settings { engine: engine.clone(), key: Some(Key::typed(key.clone())) },
        interrupts,
        !environment.has_errors,
    )?;
    let me = trial.get("/user/info", &[]).await?;
    let nearer = Key::from_environment(environment).filter(|nearer| nearer.secret != key);
    profiles.profiles.insert(name.clone(), Profile { engine: engine.clone(), key });
    profiles.current = Some(name.clone());
    profiles.write(directory)?;
    // The key is on disk elsewhere now.
    if let Some(file) = &key_file {
        std::fs::remove_file(file)
            .map_err(|e| Failure::new(format!("the key is saved, but {} cannot be removed: {e}", file.display())))?;
    }
    if let Some(nearer) = nearer {
        output::print_note(&format!("Note: the API key {} takes precedence over this profile.", nearer.origin));
    }
    if options.json {
        output::print_json(&me)
    } else {
        output::print_text(&format!(
            "You are {} at {engine} (profile {name}).",
            sanitize_line(text_field(&me, "email"))
        ))
    }
}

/// Reads the key that `tarn serve` wrote.
fn read_key_file(path: &Path) -> Result<String> {
    let mut key = String::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MAX_KEY_BYTES).read_to_string(&mut key));
    read.map_err(|e| {
        let todo = "`tarn admin key reset --data DIR` writes a new key";
        Failure::new(format!("cannot read the administrator's key in {}: {e}; {todo}", path.display()))
    })?;
    Ok(key.trim().to_owned())
}
