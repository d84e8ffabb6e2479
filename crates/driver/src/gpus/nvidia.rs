//! NVIDIA GPUs, read through the library of their driver (NVML). It is loaded at run time; a host without it has none.
//!
//! The tests of this project have never run on a real GPU. So every query may fail, and a GPU counts as gone only when
//! the library reports it lost, or lists all GPUs without it.
//!
//! The library stays open between readings: without NVIDIA's persistence daemon every opening would initialise all GPUs
//! again.

mod raw;

use std::ffi::OsStr;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use tarn_model::gpus::Figures;

use super::{Answer, BrokenMemory, Probe, Reading, Readings, Slice};
use raw::Raw;

/// The maximum number of GPUs of a host.
const MAX_GPUS: u32 = 256;

/// The maximum number of processes reported per GPU.
const MAX_PROCESSES: usize = 1024;

/// The GPUs that NVML finds. The library is loaded at the first reading at which the driver is available, which after a
/// boot may be later than the engine, and again after it has failed.
#[derive(Default)]
pub struct Nvidia {
    opened: Option<Opened>,
}

/// Why the identity or the slices of a GPU are unknown.
enum Unknown {
    /// The library reports that the GPU is lost.
    Lost,
    /// The GPU may exist.
    Silent,
}

struct Opened {
    nvml: Nvml,
    raw: Option<Raw>,
}

impl Probe for Nvidia {
    fn read(&mut self) -> Readings {
        let Some(opened) = self.opened.take().or_else(Opened::open) else { return Readings::default() };
        match opened.nvml.device_count() {
            Ok(count) => {
                let readings = opened.read(count);
                self.opened = Some(opened);
                readings
            }
            Err(error) => {
                tracing::warn!(%error, "NVML does not report the number of GPUs; it is loaded again");
                Readings::default()
            }
        }
    }
}

impl Opened {
    /// Loads the library; `None` on a host without it, or without the driver.
    fn open() -> Option<Self> {
        let nvml = Nvml::builder().lib_path(OsStr::new(raw::LIBRARY)).init();
        let nvml = nvml.inspect_err(|error| tracing::debug!(%error, "no GPUs by NVML")).ok()?;
        let raw = Raw::open();
        if raw.is_none() {
            tracing::warn!("this version of NVML does not report slices and remapped memory of GPUs");
        }
        Some(Opened { nvml, raw })
    }

    fn read(&self, count: u32) -> Readings {
        let mut readings = Readings { gpus: Vec::new(), is_complete: count <= MAX_GPUS };
        for index in 0..count.min(MAX_GPUS) {
            match self.device(index) {
                Ok((reading, is_complete)) => {
                    readings.gpus.push(reading);
                    readings.is_complete &= is_complete;
                }
                // Its absence from a complete list reports it as lost.
                Err(Unknown::Lost) => {}
                Err(Unknown::Silent) => readings.is_complete = false,
            }
        }
        readings
    }

    /// Reads one GPU; also returns whether all of its slices are known.
    fn device(&self, index: u32) -> Result<(Reading, bool), Unknown> {
        let unknown = |error: NvmlError| {
            tracing::warn!(index, %error, "a GPU does not report its id and name");
            Unknown::from(error)
        };
        let device = self.nvml.device_by_index(index).map_err(unknown)?;
        let (id, name) = (device.uuid().map_err(unknown)?, device.name().map_err(unknown)?);
        let (slices, is_complete) = match self.slices(index, &device) {
            Ok(slices) => (slices, true),
            // A GPU whose slices are unknown must not be given away as a whole either.
            Err(Unknown::Lost | Unknown::Silent) => (Some(Vec::new()), false),
        };
        let cuda = self.nvml.sys_cuda_driver_version().ok();
        let reading = Reading {
            id,
            index: Some(index.to_string()),
            name,
            simulated: false,
            memory_bytes: device.memory_info().map(|memory| memory.total).unwrap_or(0),
            driver_version: self.nvml.sys_driver_version().ok(),
            cuda_version: cuda.map(|version| format!("{}.{}", version / 1000, version % 1000 / 10)),
            bus_id: device.pci_info().map(|pci| pci.bus_id).ok(),
            figures: read_figures(&device),
            answer: if is_complete { read_answer(&device) } else { read_answer(&device).at_best_silent() },
            memory: self.memory(&device),
            throttled: throttle_reason(&device),
            xids: Vec::new(),
            processes: running_processes(&device),
            slices,
        };
        Ok((reading, is_complete))
    }

    fn memory(&self, device: &Device<'_>) -> BrokenMemory {
        let remapped = self.raw.as_ref().and_then(|raw| raw.remapped(device)).unwrap_or_default();
        BrokenMemory {
            remap_failed: remapped.failed,
            remap_pending: remapped.pending,
            retirement_pending: device.are_pages_pending_retired().unwrap_or(false),
        }
    }

    /// Returns the slices of a GPU in MIG mode.
    fn slices(&self, index: u32, device: &Device<'_>) -> Result<Option<Vec<Slice>>, Unknown> {
        match device.mig_mode() {
            Ok(mode) if mode.current != 0 => {}
            // Most GPUs have no such mode, and old drivers do not support the query.
            Ok(_) | Err(NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_)) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        }
        let found = self.raw.as_ref().and_then(|raw| raw.slices(device, &self.nvml)).ok_or(Unknown::Silent)?;
        let slices = found.iter().map(|(number, found)| read_slice(found, format!("{index}:{number}")));
        let slices: Vec<Option<Slice>> = slices.collect::<Result<_, NvmlError>>()?;
        Ok(Some(slices.into_iter().flatten().collect()))
    }
}

impl From<NvmlError> for Unknown {
    fn from(error: NvmlError) -> Self {
        match error {
            NvmlError::GpuLost => Unknown::Lost,
            _ => Unknown::Silent,
        }
    }
}

/// Makes queries that every GPU supports.
fn read_answer(device: &Device<'_>) -> Answer {
    match device.memory_info().err().or_else(|| device.pci_info().err()) {
        None | Some(NvmlError::NotSupported) => Answer::Well,
        Some(NvmlError::GpuLost) => Answer::Lost,
        Some(_) => Answer::Silent,
    }
}

fn read_figures(device: &Device<'_>) -> Figures {
    let errors = |counter| device.total_ecc_errors(MemoryError::Uncorrected, counter).ok();
    Figures {
        temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok(),
        power_milliwatts: device.power_usage().ok(),
        utilisation_percent: device.utilization_rates().map(|rates| rates.gpu).ok(),
        memory_used_bytes: device.memory_info().map(|memory| memory.used).ok(),
        uncorrected_errors: errors(EccCounter::Volatile),
        uncorrected_errors_ever: errors(EccCounter::Aggregate),
    }
}

/// Only what the hardware does to protect itself: idling and configured limits are no faults.
fn throttle_reason(device: &Device<'_>) -> Option<&'static str> {
    let reasons = device.current_throttle_reasons().ok()?;
    let serious = [
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, "too hot"),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "too little power"),
        (ThrottleReasons::HW_SLOWDOWN, "too hot or too little power"),
    ];
    serious.into_iter().find(|(reason, _)| reasons.contains(*reason)).map(|(_, words)| words)
}

fn running_processes(device: &Device<'_>) -> Vec<u32> {
    let compute = device.running_compute_processes().unwrap_or_default();
    let graphics = device.running_graphics_processes().unwrap_or_default();
    let mut pids: Vec<u32> = compute.iter().chain(&graphics).map(|process| process.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    pids.truncate(MAX_PROCESSES);
    pids
}

/// A slice is named after its GPU and its profile: `NVIDIA H100 80GB HBM3 MIG 1g.10gb`. Anything else is not a slice.
fn read_slice(device: &Device<'_>, index: String) -> Result<Option<Slice>, NvmlError> {
    let (id, name) = (device.uuid()?, device.name()?);
    let Some((_, profile)) = name.rsplit_once(" MIG ") else {
        tracing::warn!(id, name, "a slice of a GPU does not report its profile and is left out");
        return Ok(None);
    };
    let memory_bytes = device.memory_info().map(|memory| memory.total).unwrap_or(0);
    let profile = profile.to_owned();
    Ok(Some(Slice { id, index: Some(index), profile, memory_bytes, processes: running_processes(device) }))
}
