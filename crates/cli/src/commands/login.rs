//! `tarn login`: tries an API key, and saves it with the URL of its engine.

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

#[derive(Args, Debug)]
pub struct Login {
    /// Read the API key from standard input instead of asking for it
    #[arg(long)]
    stdin: bool,
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
    let key = match login.stdin {
        true => prompts::read_stdin_line(&interrupts).await?,
        false if environment.has_input && !options.no_input => {
            prompts::read_secret(&interrupts, format!("API key for {engine}: ")).await?
        }
        false => return Err(Failure::usage("this is not a terminal; pass the API key to `tarn login --stdin`")),
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
