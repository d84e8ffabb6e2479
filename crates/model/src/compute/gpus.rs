//! GPUs: what is known of one, which faults it can have, and when it is offered.
//!
//! A fault is seen in one observation; [`Health`] follows from all observations so far. A GPU is offered while it is
//! healthy, not drained and without an owner. An instance keeps its GPU, whatever becomes of it.

mod observation;
mod xids;

use std::fmt;
use std::time::Duration;

use crate::capacity::Gpu;
use crate::{Refused, Time};

pub use observation::{GpuObservation, Unseen};
pub use xids::meaning;

/// What does not change about a GPU from one observation to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub memory_bytes: u64,
    /// The version of its kernel driver.
    pub driver_version: Option<String>,
    /// The version of CUDA that its kernel driver supports.
    pub cuda_version: Option<String>,
    /// Where it is on the PCI bus.
    pub bus_id: Option<String>,
    /// The GPU that it is a slice of.
    pub parent: Option<String>,
}

/// What a GPU measured in one observation; what it does not measure is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Figures {
    pub temperature_celsius: Option<u32>,
    pub power_milliwatts: Option<u32>,
    pub utilisation_percent: Option<u32>,
    pub memory_used_bytes: Option<u64>,
    /// Memory errors that could not be corrected, since the kernel driver was loaded.
    pub uncorrected_errors: Option<u64>,
    /// The same over its whole life. It tells the age of a GPU, not its present health.
    pub uncorrected_errors_ever: Option<u64>,
}

/// A fault that was seen in one observation of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It has fallen off its bus, or was there before and is gone.
    Lost,
    /// It does not answer queries.
    Silent,
    /// The kernel reported an error that only an operator can repair.
    Xid {
        /// NVIDIA's number of the error.
        code: u32,
        /// When the kernel logged it.
        at: Time,
    },
    /// Its memory has had errors that could not be corrected.
    UncorrectedErrors(u64),
    /// Broken memory could not be replaced by spare memory.
    RemapFailed,
    /// Broken memory waits for the next reset to be replaced.
    RemapPending,
    /// Broken memory waits for the next reset to be taken out of use.
    RetirementPending,
    /// It slows itself down to protect itself, for this reason.
    Throttled(&'static str),
    /// So many processes that do not belong to its owner use it.
    Foreign(usize),
    /// It is in MIG mode and has no slices.
    Undivided,
    /// No CDI specification on the host says what an instance needs to use it.
    Undescribed,
    /// Its CDI specification cannot be used, or names something that does not exist.
    Unusable,
}

impl Fault {
    /// Returns whether the fault holds until an operator clears it, even when it is no longer seen.
    fn is_fatal(&self) -> bool {
        match self {
            Fault::Lost | Fault::Xid { .. } => true,
            Fault::Silent | Fault::UncorrectedErrors(_) | Fault::RemapFailed | Fault::RemapPending => false,
            Fault::RetirementPending | Fault::Throttled(_) | Fault::Foreign(_) => false,
            Fault::Undivided | Fault::Undescribed | Fault::Unusable => false,
        }
    }
}

/// For operators and owners: the texts name no other tenant and no path.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Lost => f.write_str("it has fallen off its bus or is not there any more"),
            Fault::Silent => f.write_str("it does not respond"),
            Fault::Xid { code, at } => match meaning(*code) {
                Some(meaning) => write!(f, "Xid {code} ({meaning}) at {at}"),
                None => write!(f, "Xid {code} at {at}"),
            },
            Fault::UncorrectedErrors(1) => f.write_str("1 memory error could not be corrected"),
            Fault::UncorrectedErrors(count) => write!(f, "{count} memory errors could not be corrected"),
            Fault::RemapFailed => f.write_str("broken memory could not be replaced"),
            Fault::RemapPending => f.write_str("broken memory will be replaced at its next reset"),
            Fault::RetirementPending => f.write_str("broken memory will be taken out of use at its next reset"),
            Fault::Throttled(why) => write!(f, "it slows itself down ({why})"),
            Fault::Foreign(1) => f.write_str("a process that belongs to no instance uses it"),
            Fault::Foreign(count) => write!(f, "{count} processes that belong to no instance use it"),
            Fault::Undivided => f.write_str("it is in MIG mode and not divided into slices"),
            Fault::Undescribed => f.write_str("no CDI specification says what an instance needs to use it"),
            Fault::Unusable => f.write_str("what its CDI specification wants cannot be given to an instance"),
        }
    }
}

/// A GPU as it was seen in one observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedGpu {
    pub gpu: Gpu,
    pub facts: Facts,
    pub figures: Figures,
    pub faults: Vec<Fault>,
}

impl ObservedGpu {
    /// Returns a GPU of which only its presence is known.
    pub fn plain(gpu: Gpu) -> Self {
        ObservedGpu { gpu, facts: Facts::default(), figures: Figures::default(), faults: Vec::new() }
    }
}

/// What follows from all observations of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Health {
    /// No fault is known.
    #[default]
    Good,
    /// It has a fault now.
    Bad { reason: String, since: Time },
    /// Its fault is gone, and it is watched for a while.
    Recovering { reason: String, since: Time },
    /// It had a fault that only an operator can repair.
    Fatal { reason: String, since: Time },
}

impl Health {
    /// Returns the name that the API shows and the database stores.
    pub fn name(&self) -> &'static str {
        match self {
            Health::Good => "GOOD",
            Health::Bad { .. } => "BAD",
            Health::Recovering { .. } => "RECOVERING",
            Health::Fatal { .. } => "FATAL",
        }
    }

    /// Returns what is or was wrong.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Health::Good => None,
            Health::Bad { reason, .. } | Health::Recovering { reason, .. } | Health::Fatal { reason, .. } => {
                Some(reason)
            }
        }
    }

    /// Returns since when; absent in good health.
    pub fn since(&self) -> Option<Time> {
        match self {
            Health::Good => None,
            Health::Bad { since, .. } | Health::Recovering { since, .. } | Health::Fatal { since, .. } => Some(*since),
        }
    }

    /// Returns the health after an observation at `now` that found these faults; `quiet` is how long a GPU must be
    /// without faults before it is healthy again. An Xid from before the operator cleared the GPU does not count.
    pub fn seen(self, faults: &[Fault], cleared: Option<Time>, now: Time, quiet: Duration) -> Self {
        let is_new =
            |fault: &&Fault| !matches!(fault, Fault::Xid { at, .. } if cleared.is_some_and(|then| *at <= then));
        let faults: Vec<&Fault> = faults.iter().filter(is_new).collect();
        let joined = |some: &mut dyn Iterator<Item = &&Fault>| {
            let texts: Vec<String> = some.map(ToString::to_string).collect();
            texts.join("; ")
        };
        match self {
            Health::Fatal { reason, since } => Health::Fatal { reason, since },
            Health::Good | Health::Bad { .. } | Health::Recovering { .. }
                if faults.iter().any(|fault| fault.is_fatal()) =>
            {
                Health::Fatal { reason: joined(&mut faults.iter().filter(|fault| fault.is_fatal())), since: now }
            }
            Health::Good | Health::Recovering { .. } if !faults.is_empty() => {
                Health::Bad { reason: joined(&mut faults.iter()), since: now }
            }
            Health::Good => Health::Good,
            Health::Bad { reason, .. } if faults.is_empty() => {
                Health::Recovering { reason, since: now }.healthy_after(now, quiet)
            }
            // The faults may change, as counts do; the time since when it is unhealthy does not.
            Health::Bad { since, .. } => Health::Bad { reason: joined(&mut faults.iter()), since },
            recovering @ Health::Recovering { .. } => recovering.healthy_after(now, quiet),
        }
    }

    /// Returns the health after an operator cleared the GPU: it is healthy when observations find no fault for a while.
    pub fn clear(self, now: Time) -> Result<Self, Refused> {
        match self {
            Health::Fatal { reason, .. } => Ok(Health::Recovering { reason, since: now }),
            Health::Good | Health::Bad { .. } | Health::Recovering { .. } => {
                Err(Refused::GpuNotFatal { health: self.name() })
            }
        }
    }

    fn healthy_after(self, now: Time, quiet: Duration) -> Self {
        match self {
            Health::Recovering { since, .. } if since.after(quiet) <= now => Health::Good,
            unchanged @ (Health::Good | Health::Bad { .. } | Health::Recovering { .. } | Health::Fatal { .. }) => {
                unchanged
            }
        }
    }

    /// Returns why a GPU in this health is not offered.
    fn reason_to_withhold(&self) -> Option<String> {
        match self {
            Health::Good => None,
            Health::Bad { reason, .. } => Some(reason.clone()),
            Health::Recovering { reason, .. } => Some(format!("watched for a while after this was repaired: {reason}")),
            Health::Fatal { reason, .. } => Some(format!("{reason}; an operator must check and clear it")),
        }
    }
}

/// The decision of an operator that a GPU or the host takes no new claims.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Drain {
    pub reason: Option<String>,
    pub since: Time,
}

/// The text does not name the operator: the owners of claims read it.
impl fmt::Display for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Some(reason) => write!(f, "drained by an operator at {}: {reason}", self.since),
            None => write!(f, "drained by an operator at {}", self.since),
        }
    }
}

/// A GPU as the database stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuRecord {
    pub gpu: Gpu,
    pub facts: Facts,
    pub health: Health,
    /// When an operator last cleared it.
    pub cleared: Option<Time>,
    pub drain: Option<Drain>,
}

impl GpuRecord {
    /// Returns a GPU that was seen for the first time.
    pub fn new(seen: &ObservedGpu) -> Self {
        GpuRecord { gpu: seen.gpu.clone(), facts: seen.facts.clone(), health: Health::Good, cleared: None, drain: None }
    }

    /// Returns this GPU after another observation.
    pub fn seen(self, seen: &ObservedGpu, now: Time, quiet: Duration) -> Self {
        // A lost GPU no longer reports its facts.
        let facts = if seen.facts == Facts::default() { self.facts } else { seen.facts.clone() };
        let health = self.health.seen(&seen.faults, self.cleared, now, quiet);
        GpuRecord { gpu: seen.gpu.clone(), facts, health, ..self }
    }

    /// Returns why it is not offered, with every reason that an operator would have to remove.
    pub fn withheld(&self) -> Option<String> {
        let reasons: Vec<String> =
            self.health.reason_to_withhold().into_iter().chain(self.drain.as_ref().map(Drain::to_string)).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }
}

#[cfg(test)]
mod tests;
