//! The GPUs of a machine: which there are, how they are, who uses them, and what an instance needs to use one.
//!
//! [`Probe`] is what has to be asked of a GPU. `nvidia` asks NVIDIA's library, `simulated` a declaration and a script of
//! faults; [`Watch`] makes of their answers, and of the kernel log, what the rest of the house knows as a GPU. [`cdi`] reads
//! what the vendor says an instance needs. Start reading at [`Watch::look`].

pub mod cdi;
mod kernel_log;
mod nvidia;
mod simulated;
mod watch;

use std::time::Duration;

use tarn_model::Time;
use tarn_model::gpus::Figures;

pub use nvidia::Nvidia;
pub use simulated::SimulatedProbe;
pub use watch::Watch;

/// How long a look may take; it needs a tenth of a second.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What can be asked about the GPUs of a machine.
pub trait Probe: Send {
    /// Every GPU there is, as it is now. A GPU that does not answer is among them, as far as it is known.
    fn read(&mut self) -> Readings;
}

/// What was answered about all GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// Those that could be asked.
    pub gpus: Vec<Reading>,
    /// Whether there are no others: only then one that is not among them is lost. Otherwise nothing is known of it.
    pub is_complete: bool,
}

/// One GPU as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Its id, which stays the same over restarts of the machine.
    pub id: String,
    /// What it is called besides, in specifications of the vendor: its number.
    pub index: Option<String>,
    /// Its full name, or a model if it is simulated.
    pub name: String,
    /// Whether it is only declared.
    pub simulated: bool,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// The version of its kernel driver.
    pub driver_version: Option<String>,
    /// The version of CUDA that the driver brings.
    pub cuda_version: Option<String>,
    /// Where it is on the PCI bus.
    pub bus_id: Option<String>,
    /// What it measures.
    pub figures: Figures,
    /// How it answers.
    pub answer: Answer,
    /// Whether broken memory could not be replaced, waits to be replaced, or waits to be taken out of use.
    pub memory: BrokenMemory,
    /// Why it slows itself down, if that is to protect itself.
    pub throttled: Option<&'static str>,
    /// Errors that a script lets happen, and when; those of real ones are in the kernel log.
    pub xids: Vec<(u32, Time)>,
    /// The processes that use it.
    pub processes: Vec<u32>,
    /// Its slices, if it is divided or to be divided; it is not itself to be given to anybody then.
    pub slices: Option<Vec<Slice>>,
}

/// How a GPU answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// As it should.
    #[default]
    Well,
    /// It has fallen off its bus.
    Lost,
    /// Not to everything that it should answer.
    Silent,
}

impl Answer {
    /// The same of one that does not answer something else.
    fn at_best_silent(self) -> Self {
        match self {
            Answer::Well | Answer::Silent => Answer::Silent,
            Answer::Lost => Answer::Lost,
        }
    }
}

/// What is to be done about broken memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct BrokenMemory {
    pub remap_failed: bool,
    pub remap_pending: bool,
    pub retirement_pending: bool,
}

/// A slice of a GPU that is divided (MIG).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// Its id.
    pub id: String,
    /// What it is called besides: the numbers of its GPU and its own.
    pub index: Option<String>,
    /// What it is: `1g.10gb`.
    pub profile: String,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// The processes that use it.
    pub processes: Vec<u32>,
}
