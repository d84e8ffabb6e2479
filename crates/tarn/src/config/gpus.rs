//! The `[gpus]` section: how GPUs are observed, and where their CDI specifications are.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tarn_driver::gpus::cdi::Directories;
use tarn_driver::gpus::{SimulatedProbe, Watch};
use tarn_model::Clock;

use super::Config;
use crate::failure::{Failure, Result};

/// The `[gpus]` section.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Gpus {
    /// Directories of Container Device Interface specifications; later ones take precedence.
    cdi_dirs: Vec<PathBuf>,
    /// The interval between two observations.
    look_every_seconds: f64,
    /// How long a GPU must be healthy before it is offered again.
    recovery_seconds: f64,
}

impl Default for Gpus {
    fn default() -> Self {
        Gpus {
            cdi_dirs: ["/etc/cdi", "/var/run/cdi"].map(PathBuf::from).into(),
            look_every_seconds: 5.0,
            recovery_seconds: 30.0,
        }
    }
}

impl Gpus {
    pub(super) fn check(&self) -> Result<()> {
        let sane = |what: &str, value: f64, least: f64| {
            if (least..=86_400.0).contains(&value) {
                Ok(())
            } else {
                Err(Failure(format!("gpus.{what} must be a number from {least} to 86400")))
            }
        };
        sane("look_every_seconds", self.look_every_seconds, 0.1)?;
        sane("recovery_seconds", self.recovery_seconds, 0.0)
    }
}

impl Config {
    /// Builds the observer of the GPUs of this host.
    pub(crate) fn watch(&self, clock: Arc<dyn Clock>) -> Watch {
        let declared = self.simulated_gpus.as_ref().map(|simulated| simulated.gpus());
        let probe = declared.map(|gpus| SimulatedProbe::new(gpus, self.simulated_gpu_faults.clone()));
        Watch::new(probe, clock)
    }

    /// The directories of CDI specifications.
    pub(crate) fn cdi(&self) -> Directories {
        Directories(self.gpus.cdi_dirs.clone())
    }

    /// The interval between two observations, and how long a GPU must be healthy before it is offered again.
    pub(super) fn gpu_times(&self) -> (Duration, Duration) {
        let Gpus { look_every_seconds, recovery_seconds, .. } = self.gpus;
        (Duration::from_secs_f64(look_every_seconds), Duration::from_secs_f64(recovery_seconds))
    }
}
