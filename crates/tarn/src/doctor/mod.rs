//! `tarn doctor`: checks this host and the engine on it, and says how to fix what is wrong.
//!
//! It only reads: it holds a lock of the engine just long enough to test it, and writes nothing into the data
//! directory. The driver examines the host and the store examines the database; `checks` has the rest. Only `--full`
//! creates something, as a user would, and removes it again.
//!
//! Start reading at [`run_doctor`], then at [`areas`].

mod areas;
mod checks;
mod full;
mod probes;
mod report;
mod target;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use tarn_cli::Environment;
use tarn_driver::findings::Finding;

use crate::config::{Config, ServeOptions};
use crate::failure::{Failure, Result};
use report::Report;
use target::Target;

/// Options of `tarn doctor`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DoctorOptions {
    /// Also create a cluster, a volume, a bucket and a job through the API, as a user would, and remove them again
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    serve: ServeOptions,
}

/// Examines everything, and returns the exit code: 1 if something does not work.
pub(crate) async fn run_doctor(
    options: DoctorOptions,
    client: tarn_cli::Options,
    environment: Environment,
) -> ExitCode {
    let mut report = Report::new(client.json, environment.width.is_some() && !environment.no_color);
    let loaded = Config::load(&options.serve).and_then(|config| check_data_directory(&config.data).map(|()| config));
    let is_loaded = loaded.is_ok();
    let config = match loaded {
        Ok(config) => config,
        Err(failure) => {
            let todo = "correct it as docs/operating/configuration.md says; until then only the host is examined";
            report
                .add_area("configuration", vec![Finding::failure("configuration.readable", failure.to_string(), todo)]);
            Config::default()
        }
    };
    let target = Arc::new(Target::from_config(config, client.engine.clone()));
    for area in areas::AREAS.iter().filter(|area| is_loaded || area.is_host) {
        report.add_area(area.name, areas::examine_area(area, target.clone()).await);
    }
    if is_loaded {
        report.show_configuration(&target.config);
    }
    let interrupted =
        if options.full { full::run_full_trial(&mut report, &target, client, environment).await } else { false };
    report.finish(interrupted)
}

/// Fails if the path is not a directory and cannot become one. No finding about its content would be right.
fn check_data_directory(data: &Path) -> Result<()> {
    let is_wrong = match std::fs::metadata(data) {
        Ok(found) => !found.is_dir(),
        Err(error) => error.kind() == std::io::ErrorKind::NotADirectory,
    };
    if is_wrong {
        let shown = data.display();
        Err(Failure(format!("the data directory {shown} is not a directory; give another one as --data")))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_must_be_a_directory_or_absent() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(
            check_data_directory(place.path()).is_ok() && check_data_directory(&place.path().join("later")).is_ok()
        );
        for wrong in [file.clone(), file.join("below")] {
            assert!(
                check_data_directory(&wrong).is_err_and(|failure| failure.to_string().contains("is not a directory"))
            );
        }
    }
}
