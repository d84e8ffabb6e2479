//! `tarn login`: tries a key, and keeps it with the address of its engine.

use clap::Args;

use crate::commands::Options;
use crate::engine::Engine;
use crate::failure::{Failure, Result};
use crate::interrupts::Interrupts;
use crate::output::{self, line, text};
use crate::profiles::{DEFAULT, Profile, Profiles};
use crate::settings::{Key, Settings};
use crate::surroundings::Surroundings;
use crate::{addresses, prompts};

#[derive(Args, Debug)]
pub struct Login {
    /// Read the key from standard input, and ask nothing
    #[arg(long)]
    stdin: bool,
}

pub(crate) async fn run(
    login: Login,
    options: &Options,
    surroundings: &Surroundings,
    interrupts: Interrupts,
) -> Result<()> {
    let directory = surroundings.configuration.as_deref();
    let directory = directory.ok_or_else(|| Failure::new("there is no directory for configuration; set HOME"))?;
    let mut profiles = Profiles::read(directory)?;
    let name = options.profile.as_deref().or(surroundings.profile.as_deref()).unwrap_or(DEFAULT).to_owned();
    let known = profiles.profiles.get(&name).map(|profile| profile.engine.clone());
    let engine = options.engine.clone().or_else(|| surroundings.engine.clone()).or(known);
    let engine = addresses::checked(engine.as_deref().unwrap_or(addresses::DEFAULT))?;
    let key = match login.stdin {
        true => prompts::line(&interrupts).await?,
        false if surroundings.has_input && !options.no_input => {
            prompts::secret(&interrupts, format!("API key for {engine}: ")).await?
        }
        false => return Err(Failure::usage("nobody can be asked here; give the key to `tarn login --stdin`")),
    };
    if key.is_empty() {
        return Err(Failure::usage("no key was given"));
    }
    let trial = Engine::new(
        Settings { engine: engine.clone(), key: Some(Key::given(key.clone())) },
        interrupts,
        !surroundings.has_errors,
    )?;
    let me = trial.get("/user/info", &[]).await?;
    let nearer = Key::around(surroundings).filter(|nearer| nearer.secret != key);
    profiles.profiles.insert(name.clone(), Profile { engine: engine.clone(), key });
    profiles.current = Some(name.clone());
    profiles.write(directory)?;
    if let Some(nearer) = nearer {
        output::tell(&format!("Note that the API key {} comes before this profile.", nearer.origin));
    }
    match options.json {
        true => output::print_json(&me),
        false => output::print(&format!("You are {} at {engine} (profile {name}).", line(text(&me, "email")))),
    }
}
