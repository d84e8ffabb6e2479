//! GPUs: what is known of one, what can be wrong with it, and when it is offered.
//!
//! A fault is what was seen at one look; [`Health`] is what follows from all looks so far. A GPU is offered while it is in
//! good health, was not drained, and nobody owns it. Whoever owns one keeps it, whatever becomes of it.

mod looks;
mod xids;

use std::fmt;
use std::time::Duration;

use crate::capacity::Gpu;
use crate::{Refused, Time};

pub use looks::{Look, Unseen};
pub use xids::meaning;

/// What a GPU is, which does not change from look to look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// The version of its kernel driver.
    pub driver_version: Option<String>,
    /// The version of CUDA that the driver brings.
    pub cuda_version: Option<String>,
    /// Where it is on the PCI bus.
    pub bus_id: Option<String>,
    /// The GPU that it is a slice of.
    pub parent: Option<String>,
}

/// What a GPU measured at one look; what it does not measure is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Figures {
    pub temperature_celsius: Option<u32>,
    pub power_milliwatts: Option<u32>,
    pub utilisation_percent: Option<u32>,
    pub memory_used_bytes: Option<u64>,
    /// Errors of its memory that could not be corrected, since the driver was loaded.
    pub uncorrected_errors: Option<u64>,
    /// The same in its whole life. It says how old a GPU is, and not how it is now.
    pub uncorrected_errors_ever: Option<u64>,
}

/// Something that is wrong with a GPU at one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It has fallen off its bus, or was there before and is gone.
    Lost,
    /// It does not answer what it is asked.
    Silent,
    /// The kernel reported an error of it that only a person can put right.
    Xid {
        /// NVIDIA's number of the error.
        code: u32,
        /// When the kernel wrote it down.
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
    /// It slows itself down to protect itself; why.
    Throttled(&'static str),
    /// Processes that belong to no owner of it use it; how many.
    Foreign(usize),
    /// It is to be divided, and has no slices that could be given to anybody.
    Undivided,
    /// Nothing on the machine says what an instance needs to use it.
    Undescribed,
    /// What is said about that cannot be used, or something of it is not there.
    Unusable,
}

impl Fault {
    /// Whether it stays wrong until an operator has looked at it, also when it is not seen any more.
    fn is_fatal(&self) -> bool {
        match self {
            Fault::Lost | Fault::Xid { .. } => true,
            Fault::Silent | Fault::UncorrectedErrors(_) | Fault::RemapFailed | Fault::RemapPending => false,
            Fault::RetirementPending | Fault::Throttled(_) | Fault::Foreign(_) => false,
            Fault::Undivided | Fault::Undescribed | Fault::Unusable => false,
        }
    }
}

/// In words for operators and owners: nothing of other tenants, no paths.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Lost => f.write_str("it has fallen off its bus or is not there any more"),
            Fault::Silent => f.write_str("it does not answer"),
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

/// A GPU as it was seen at one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Which it is.
    pub gpu: Gpu,
    /// What it is.
    pub facts: Facts,
    /// What it measured.
    pub figures: Figures,
    /// What is wrong with it.
    pub faults: Vec<Fault>,
}

impl Seen {
    /// A GPU of which nothing is known but that it is there.
    pub fn plain(gpu: Gpu) -> Self {
        Seen { gpu, facts: Facts::default(), figures: Figures::default(), faults: Vec::new() }
    }
}

/// What follows from all looks at a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Health {
    /// Nothing is wrong.
    #[default]
    Good,
    /// Something is wrong now.
    Bad { reason: String, since: Time },
    /// Nothing is wrong any more, and it is watched for a while.
    Recovering { reason: String, since: Time },
    /// Something was wrong that only an operator can put right.
    Fatal { reason: String, since: Time },
}

impl Health {
    /// The name, as it is kept and shown.
    pub fn name(&self) -> &'static str {
        match self {
            Health::Good => "GOOD",
            Health::Bad { .. } => "BAD",
            Health::Recovering { .. } => "RECOVERING",
            Health::Fatal { .. } => "FATAL",
        }
    }

    /// What is or was wrong.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Health::Good => None,
            Health::Bad { reason, .. } | Health::Recovering { reason, .. } | Health::Fatal { reason, .. } => {
                Some(reason)
            }
        }
    }

    /// Since when it is so; absent in good health.
    pub fn since(&self) -> Option<Time> {
        match self {
            Health::Good => None,
            Health::Bad { since, .. } | Health::Recovering { since, .. } | Health::Fatal { since, .. } => Some(*since),
        }
    }

    /// After a look at `now` that found these faults; `quiet` is how long nothing may be wrong before it counts as well again.
    /// An Xid from before the operator cleared the last one is history.
    pub fn seen(self, faults: &[Fault], cleared: Option<Time>, now: Time, quiet: Duration) -> Self {
        let is_news =
            |fault: &&Fault| !matches!(fault, Fault::Xid { at, .. } if cleared.is_some_and(|then| *at <= then));
        let faults: Vec<&Fault> = faults.iter().filter(is_news).collect();
        let told = |some: &mut dyn Iterator<Item = &&Fault>| {
            let words: Vec<String> = some.map(ToString::to_string).collect();
            words.join("; ")
        };
        match self {
            Health::Fatal { reason, since } => Health::Fatal { reason, since },
            Health::Good | Health::Bad { .. } | Health::Recovering { .. }
                if faults.iter().any(|fault| fault.is_fatal()) =>
            {
                Health::Fatal { reason: told(&mut faults.iter().filter(|fault| fault.is_fatal())), since: now }
            }
            Health::Good | Health::Recovering { .. } if !faults.is_empty() => {
                Health::Bad { reason: told(&mut faults.iter()), since: now }
            }
            Health::Good => Health::Good,
            Health::Bad { reason, .. } if faults.is_empty() => {
                Health::Recovering { reason, since: now }.rested(now, quiet)
            }
            // What exactly is wrong may change, as counts do; since when it is not well does not.
            Health::Bad { since, .. } => Health::Bad { reason: told(&mut faults.iter()), since },
            recovering @ Health::Recovering { .. } => recovering.rested(now, quiet),
        }
    }

    /// After an operator said that it is right again: it is believed to him when looks have found nothing for a while.
    pub fn clear(self, now: Time) -> Result<Self, Refused> {
        match self {
            Health::Fatal { reason, .. } => Ok(Health::Recovering { reason, since: now }),
            Health::Good | Health::Bad { .. } | Health::Recovering { .. } => {
                Err(Refused::GpuNotFatal { health: self.name() })
            }
        }
    }

    fn rested(self, now: Time, quiet: Duration) -> Self {
        match self {
            Health::Recovering { since, .. } if since.after(quiet) <= now => Health::Good,
            other => other,
        }
    }

    /// Why a GPU in this health is not offered.
    fn withholds(&self) -> Option<String> {
        match self {
            Health::Good => None,
            Health::Bad { reason, .. } => Some(reason.clone()),
            Health::Recovering { reason, .. } => Some(format!("watched for a while after this was mended: {reason}")),
            Health::Fatal { reason, .. } => Some(format!("{reason}; an operator has to look at it")),
        }
    }
}

/// That an operator wants nothing new on a GPU or on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Drain {
    pub reason: Option<String>,
    pub since: Time,
}

/// Without who did it: owners of claims read this.
impl fmt::Display for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Some(reason) => write!(f, "drained by an operator at {}: {reason}", self.since),
            None => write!(f, "drained by an operator at {}", self.since),
        }
    }
}

/// A GPU as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Which it is.
    pub gpu: Gpu,
    /// What it is.
    pub facts: Facts,
    /// How it is.
    pub health: Health,
    /// When an operator last cleared it.
    pub cleared: Option<Time>,
    /// Whether it is drained.
    pub drain: Option<Drain>,
}

impl Known {
    /// A GPU that was seen for the first time.
    pub fn new(seen: &Seen) -> Self {
        Known { gpu: seen.gpu.clone(), facts: seen.facts.clone(), health: Health::Good, cleared: None, drain: None }
    }

    /// After another look.
    pub fn seen(self, seen: &Seen, now: Time, quiet: Duration) -> Self {
        // A lost one does not tell what it is any more.
        let facts = if seen.facts == Facts::default() { self.facts } else { seen.facts.clone() };
        let health = self.health.seen(&seen.faults, self.cleared, now, quiet);
        Known { gpu: seen.gpu.clone(), facts, health, ..self }
    }

    /// Why it is not offered, if it is not: everything that an operator would have to undo.
    pub fn withheld(&self) -> Option<String> {
        let words: Vec<String> =
            self.health.withholds().into_iter().chain(self.drain.as_ref().map(Drain::to_string)).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }
}

#[cfg(test)]
mod tests;
