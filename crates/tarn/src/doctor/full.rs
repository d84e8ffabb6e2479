//! `--full`: the engine tried as a user would, through the API and with a user's key. What is made is removed again.

use rand::Rng as _;
use tarn_cli::{Means, Surroundings, trial};
use tarn_driver::findings::Finding;
use tarn_model::Clock as _;

use super::patient::Patient;
use super::report::Report;
use super::running::Running;
use crate::environment::SystemClock;

/// How many characters make the names of a trial its own.
const MARK: usize = 8;

/// Tries it; whether somebody pressed Ctrl-C.
pub(super) async fn run(
    report: &mut Report,
    patient: &Patient,
    mut client: tarn_cli::Options,
    around: Surroundings,
) -> bool {
    // Without another word the engine of this configuration is meant, by the name that clients are told.
    let is_named =
        client.engine.is_some() || client.profile.is_some() || around.engine.is_some() || around.profile.is_some();
    if !is_named {
        if patient.running == Running::Nowhere && patient.database_file().is_some() {
            let found = format!("no engine runs on {}: there is nothing to try", patient.data.display());
            report.fail(Finding::failure("full", found, "start one in another terminal: tarn serve"));
            return false;
        }
        client.engine = Some(patient.config.public_url.clone().unwrap_or_else(|| patient.address.clone()));
    }
    // What is made up runs nothing, and a job would wait for ever.
    let named = client.engine.as_ref().or(around.engine.as_ref());
    let is_own = !is_named || named.is_some_and(|engine| engine.trim_end_matches('/') == patient.address);
    let has_jobs = patient.is_local() || !is_own;
    report.begin_trial("A trial as a user would do it");
    let date = || SystemClock.now().to_string().replace(['-', ':'], "");
    let mut tell = |step| report.step(&step);
    let means = Means { mark: mark(), date: &date, tell: &mut tell, has_jobs };
    let tried = trial(&client, &around, means).await;
    match tried {
        Ok(interrupted) => interrupted,
        Err(failure) => {
            let key = crate::data::key_path(&patient.data);
            let todo = format!("export TENSORPOOL_KEY=$(cat '{}'), or `tarn login`", key.display());
            report.fail(Finding::failure("full", failure.to_string(), todo));
            false
        }
    }
}

fn mark() -> String {
    const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let mut bytes = [0; MARK];
    rand::rng().fill_bytes(&mut bytes);
    bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte & 31)])).collect()
}
