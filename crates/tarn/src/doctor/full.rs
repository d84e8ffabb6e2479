//! `--full`: a trial of the engine through its API, with the key of a user. Everything it creates is removed again.

use rand::Rng as _;
use tarn_cli::{Environment, TrialOptions, run_trial};
use tarn_driver::findings::Finding;
use tarn_model::Clock as _;

use super::probes::engine_state::EngineState;
use super::report::Report;
use super::target::Target;
use crate::environment::SystemClock;

/// The length of the unique suffix of names.
const SUFFIX_LENGTH: usize = 8;

/// Runs the trial, and returns whether the user pressed Ctrl-C.
pub(super) async fn run_full_trial(
    report: &mut Report,
    target: &Target,
    mut client: tarn_cli::Options,
    environment: Environment,
) -> bool {
    // Unless another engine is named, the engine of this configuration is tried, under the URL that clients are told.
    let is_named = client.engine.is_some()
        || client.profile.is_some()
        || environment.engine.is_some()
        || environment.profile.is_some();
    if !is_named {
        if target.engine_state == EngineState::Stopped && target.database_file().is_some() {
            let found = format!("no engine runs on {}, so there is nothing to try", target.data.display());
            report.add_failure(Finding::failure("full", found, "start one in another terminal: tarn serve"));
            return false;
        }
        client.engine = Some(target.config.public_url.clone().unwrap_or_else(|| target.address.clone()));
    }
    // The fake driver runs no jobs, so a job would wait without end.
    let named = client.engine.as_ref().or(environment.engine.as_ref());
    let is_own = !is_named || named.is_some_and(|engine| engine.trim_end_matches('/') == target.address);
    let has_jobs = target.is_local() || !is_own;
    report.begin_trial("Trial through the API");
    let date = || SystemClock.now().to_string().replace(['-', ':'], "");
    let mut on_step = |step| report.add_step(&step);
    let options = TrialOptions { mark: random_suffix(), date: &date, on_step: &mut on_step, has_jobs };
    let tried = run_trial(&client, &environment, options).await;
    match tried {
        Ok(interrupted) => interrupted,
        Err(failure) => {
            let key = crate::data::admin_key_path(&target.data);
            let todo = format!(
                "set a key with export TENSORPOOL_KEY=$(cat '{}'), or save one with `tarn login`",
                key.display()
            );
            report.add_failure(Finding::failure("full", failure.to_string(), todo));
            false
        }
    }
}

fn random_suffix() -> String {
    const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let mut bytes = [0; SUFFIX_LENGTH];
    rand::rng().fill_bytes(&mut bytes);
    bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte & 31)])).collect()
}
