//! NVIDIA's GPUs, by the library that their driver brings (NVML). It is loaded at run time; a machine without it has none.
//!
//! None of this has ever run on a real GPU in the tests of this project: every question may be refused, and a refusal is
//! never taken for a fault unless the library says that the GPU is gone.

mod raw;

use std::ffi::OsStr;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use tarn_model::gpus::Figures;

use super::{Answer, BrokenMemory, Probe, Reading, Slice};
use raw::Raw;

/// A machine has no more.
const MAX_GPUS: u32 = 256;

/// So many processes of a GPU are told.
const MAX_PROCESSES: usize = 1024;

/// The GPUs that NVML finds.
pub struct Nvidia {
    nvml: Nvml,
    raw: Option<Raw>,
}

impl Nvidia {
    /// Loads the library; `None` on a machine without it.
    pub fn open() -> Option<Self> {
        let nvml = Nvml::builder().lib_path(OsStr::new(raw::LIBRARY)).init();
        let nvml = nvml.inspect_err(|error| tracing::debug!(%error, "no GPUs by NVML")).ok()?;
        let raw = Raw::open();
        if raw.is_none() {
            tracing::warn!("slices and remapped memory of GPUs cannot be looked at with this version of NVML");
        }
        Some(Nvidia { nvml, raw })
    }

    fn device(&self, index: u32) -> Option<Reading> {
        let device = match self.nvml.device_by_index(index) {
            Ok(device) => device,
            Err(error) => {
                // Its id is unknown; if it was seen before, it is missed by that.
                tracing::warn!(index, %error, "a GPU cannot be opened");
                return None;
            }
        };
        let (id, name) = match (device.uuid(), device.name()) {
            (Ok(id), Ok(name)) => (id, name),
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!(index, %error, "a GPU does not say which it is");
                return None;
            }
        };
        let answer = answer(&device);
        let cuda = self.nvml.sys_cuda_driver_version().ok();
        Some(Reading {
            id,
            index: Some(index.to_string()),
            name,
            simulated: false,
            memory_bytes: device.memory_info().map(|memory| memory.total).unwrap_or(0),
            driver_version: self.nvml.sys_driver_version().ok(),
            cuda_version: cuda.map(|version| format!("{}.{}", version / 1000, version % 1000 / 10)),
            bus_id: device.pci_info().map(|pci| pci.bus_id).ok(),
            figures: figures(&device),
            answer,
            memory: self.memory(&device),
            throttled: throttled(&device),
            xids: Vec::new(),
            processes: processes(&device),
            slices: self.slices(index, &device),
        })
    }

    fn memory(&self, device: &Device<'_>) -> BrokenMemory {
        let remapped = self.raw.as_ref().and_then(|raw| raw.remapped(device)).unwrap_or_default();
        BrokenMemory {
            remap_failed: remapped.failed,
            remap_pending: remapped.pending,
            retirement_pending: device.are_pages_pending_retired().unwrap_or(false),
        }
    }

    /// The slices of a GPU in MIG mode. One whose slices cannot be found out is not to be given away as a whole either.
    fn slices(&self, index: u32, device: &Device<'_>) -> Option<Vec<Slice>> {
        if device.mig_mode().ok()?.current == 0 {
            return None;
        }
        let found = self.raw.as_ref().map(|raw| raw.slices(device, &self.nvml)).unwrap_or_default();
        let slices = found.iter().enumerate().filter_map(|(number, found)| slice(found, format!("{index}:{number}")));
        Some(slices.collect())
    }
}

impl Probe for Nvidia {
    fn read(&mut self) -> Vec<Reading> {
        let count = self.nvml.device_count().unwrap_or_else(|error| {
            tracing::warn!(%error, "NVML does not say how many GPUs there are");
            0
        });
        (0..count.min(MAX_GPUS)).filter_map(|index| self.device(index)).collect()
    }
}

/// Asks what every GPU can answer.
fn answer(device: &Device<'_>) -> Answer {
    match device.memory_info().err().or_else(|| device.pci_info().err()) {
        None | Some(NvmlError::NotSupported) => Answer::Well,
        Some(NvmlError::GpuLost) => Answer::Lost,
        Some(_) => Answer::Silent,
    }
}

fn figures(device: &Device<'_>) -> Figures {
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

/// Only what the hardware does to protect itself: idling and limits that somebody has set are no faults.
fn throttled(device: &Device<'_>) -> Option<&'static str> {
    let reasons = device.current_throttle_reasons().ok()?;
    let serious = [
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, "too hot"),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "too little power"),
        (ThrottleReasons::HW_SLOWDOWN, "too hot or too little power"),
    ];
    serious.into_iter().find(|(reason, _)| reasons.contains(*reason)).map(|(_, words)| words)
}

fn processes(device: &Device<'_>) -> Vec<u32> {
    let compute = device.running_compute_processes().unwrap_or_default();
    let graphics = device.running_graphics_processes().unwrap_or_default();
    let mut pids: Vec<u32> = compute.iter().chain(&graphics).map(|process| process.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    pids.truncate(MAX_PROCESSES);
    pids
}

/// A slice is called after its GPU and its profile: `NVIDIA H100 80GB HBM3 MIG 1g.10gb`.
fn slice(device: &Device<'_>, index: String) -> Option<Slice> {
    let (id, name) = (device.uuid().ok()?, device.name().ok()?);
    let profile = name.rsplit_once(" MIG ").map_or("", |(_, profile)| profile).to_owned();
    if profile.is_empty() {
        tracing::warn!(id, name, "a slice of a GPU does not say its profile and is left out");
        return None;
    }
    let memory_bytes = device.memory_info().map(|memory| memory.total).unwrap_or(0);
    Some(Slice { id, index: Some(index), profile, memory_bytes, processes: processes(device) })
}
