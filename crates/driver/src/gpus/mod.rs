//! The GPUs of a host: which exist, their health, which processes use them, and what an instance needs to use one.
//!
//! A [`Probe`] reads GPUs. `nvidia` reads them through NVIDIA's library, `simulated` from a declaration and a script of
//! faults; [`Watch`] combines the readings with the kernel log. [`cdi`] reads what an instance needs according to the
//! vendor. Start reading at [`Watch::look`].

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

/// How long observing all GPUs may take; it normally takes a tenth of a second.
pub const LOOK_TIMEOUT: Duration = Duration::from_secs(20);

/// A source of readings of a host's GPUs.
pub trait Probe: Send {
    /// Reads every GPU. A GPU that does not respond is included with what is known of it.
    fn read(&mut self) -> Readings;
}

/// The readings of all GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// The GPUs that could be read.
    pub gpus: Vec<Reading>,
    /// Whether the list is complete: only then a missing GPU is lost. Otherwise nothing is known about it.
    pub is_complete: bool,
}

/// The reading of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Stays the same over reboots of the host.
    pub id: String,
    /// Its alternative name in specifications of the vendor: its number.
    pub index: Option<String>,
    /// The full name, or the model of a simulated GPU.
    pub name: String,
    /// Whether it is only declared.
    pub simulated: bool,
    pub memory_bytes: u64,
    /// The version of the kernel driver.
    pub driver_version: Option<String>,
    /// The CUDA version of the driver.
    pub cuda_version: Option<String>,
    pub bus_id: Option<String>,
    pub figures: Figures,
    pub answer: Answer,
    /// Whether a repair of broken memory failed or is pending.
    pub memory: BrokenMemory,
    /// Why it slows itself down, if that is to protect itself.
    pub throttled: Option<&'static str>,
    /// Scripted errors and their times; those of real GPUs are in the kernel log.
    pub xids: Vec<(u32, Time)>,
    pub processes: Vec<u32>,
    /// Its slices, if MIG is enabled. The GPU itself is then not given to an instance.
    pub slices: Option<Vec<Slice>>,
}

/// How a GPU responds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    #[default]
    Well,
    /// It has fallen off its bus.
    Lost,
    /// Some queries fail.
    Silent,
}

impl Answer {
    /// Returns the state of a GPU for which another query failed.
    fn at_best_silent(self) -> Self {
        match self {
            Answer::Well | Answer::Silent => Answer::Silent,
            Answer::Lost => Answer::Lost,
        }
    }
}

/// The state of repairs of broken memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct BrokenMemory {
    pub remap_failed: bool,
    pub remap_pending: bool,
    pub retirement_pending: bool,
}

/// A slice of a partitioned GPU (MIG).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    pub id: String,
    /// Its alternative name: the numbers of its GPU and its own.
    pub index: Option<String>,
    /// The MIG profile: `1g.10gb`.
    pub profile: String,
    pub memory_bytes: u64,
    pub processes: Vec<u32>,
}
