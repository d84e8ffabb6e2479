//! `tarn doctor`: whether this machine and the engine on it are well, and what to do where they are not.
//!
//! It only looks: it takes no lock of an engine for longer than a look needs, and writes nothing into its data. What knows the
//! machine is in the driver, what knows the database in the store; here it is put together, each area in a file of its own.
//! Only `--full` makes something, as a user would, and removes it again.
//!
//! Start reading at [`run`], then at [`areas`].

mod areas;
mod certificate;
mod configuration;
mod database;
mod drift;
mod engine;
mod full;
mod keys;
mod listeners;
mod patient;
mod ports;
mod registries;
mod report;
mod running;
mod validity;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use tarn_cli::Surroundings;
use tarn_driver::findings::Finding;

use crate::config::{Config, ServeOptions};
use crate::failure::{Failure, Result};
use patient::Patient;
use report::Report;

/// Options of `tarn doctor`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DoctorOptions {
    /// Also make a cluster, a volume, a bucket and a job through the API, as a user would, and remove them again
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    serve: ServeOptions,
}

/// Examines everything; the code that the program ends with: 1 when something does not work.
pub(crate) async fn run(options: DoctorOptions, client: tarn_cli::Options, around: Surroundings) -> ExitCode {
    let mut report = Report::begin(client.json, around.width.is_some() && !around.no_color);
    let loaded = Config::load(&options.serve).and_then(|config| may_be_directory(&config.data).map(|()| config));
    let is_loaded = loaded.is_ok();
    let config = match loaded {
        Ok(config) => config,
        Err(failure) => {
            let todo = "mend it as docs/operating/configuration.md says; without it only the machine is looked at";
            report.add("configuration", vec![Finding::failure("configuration.readable", failure.to_string(), todo)]);
            Config::default()
        }
    };
    let patient = Arc::new(Patient::of(config, client.engine.clone()));
    for area in areas::ALL.iter().filter(|area| is_loaded || area.is_machine) {
        report.add(area.name, areas::examine(area, patient.clone()).await);
    }
    if is_loaded {
        report.show_configuration(&patient.config);
    }
    let interrupted = match options.full {
        true => full::run(&mut report, &patient, client, around).await,
        false => false,
    };
    report.end(interrupted)
}

/// Whether this is a directory, or can become one. Nothing that is said of what is in there would be true of a file.
fn may_be_directory(data: &Path) -> Result<()> {
    let is_wrong = match std::fs::metadata(data) {
        Ok(found) => !found.is_dir(),
        Err(error) => error.kind() == std::io::ErrorKind::NotADirectory,
    };
    match is_wrong {
        true => {
            let shown = data.display();
            Err(Failure(format!("the data directory {shown} is not a directory; give another one as --data")))
        }
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_a_directory_or_not_there_yet() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(may_be_directory(place.path()).is_ok() && may_be_directory(&place.path().join("later")).is_ok());
        for wrong in [file.clone(), file.join("below")] {
            assert!(may_be_directory(&wrong).is_err_and(|failure| failure.to_string().contains("is not a directory")));
        }
    }
}
