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

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use tarn_cli::Surroundings;
use tarn_driver::findings::Finding;

use crate::config::{Config, ServeOptions};
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
    let loaded = Config::load(&options.serve);
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
