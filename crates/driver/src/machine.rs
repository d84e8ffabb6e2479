//! What this machine has to give: its cores, its memory, its GPUs, and GPUs that are only declared.

mod models;
mod simulated;

use std::collections::BTreeSet;
use std::{fs, io, thread};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use tarn_model::capacity::{Gpu, Inventory};

pub use models::normalised;
pub use simulated::{Malformed, Simulated};

/// Looks at this machine. What cannot be found out counts as not there, and is logged. The storage that volumes may
/// promise is the caller's to say, because it depends on where they are kept.
pub fn inventory(simulated: Option<&Simulated>, storage_bytes: u64) -> Inventory {
    let mut gpus = installed_gpus().unwrap_or_else(|error| {
        tracing::debug!(%error, "no GPUs by NVML");
        Vec::new()
    });
    gpus.extend(simulated.map(Simulated::gpus).unwrap_or_default());
    Inventory { cpu_milli: cpu_milli(), memory_bytes: memory_bytes(), gpus, storage_bytes }
}

/// The cores that this process may use, which a container's limits make fewer than the machine's.
fn cpu_milli() -> u64 {
    match thread::available_parallelism() {
        Ok(cores) => cores.get() as u64 * 1000,
        Err(error) => {
            tracing::warn!(%error, "the number of cores is unknown and counts as one");
            1000
        }
    }
}

fn memory_bytes() -> u64 {
    let total = fs::read_to_string("/proc/meminfo").and_then(|text| {
        total_bytes(&text)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/meminfo has no MemTotal in kB"))
    });
    total.unwrap_or_else(|error| {
        tracing::warn!(%error, "the machine's memory is unknown and counts as none");
        0
    })
}

fn total_bytes(meminfo: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The GPUs that NVML finds. The library is loaded at run time; a machine without it has none. A device that does not
/// answer, as one that fell off its bus, is left out, so that it does not take the healthy ones with it.
fn installed_gpus() -> Result<Vec<Gpu>, NvmlError> {
    let nvml = Nvml::init()?;
    let mut seen = BTreeSet::new();
    let mut gpus = Vec::new();
    for index in 0..nvml.device_count()? {
        let found = nvml.device_by_index(index).and_then(|device| Ok((device.uuid()?, device.name()?)));
        match found {
            Ok((id, name)) if seen.insert(id.clone()) => {
                gpus.push(Gpu { id, model: normalised(&name), simulated: false })
            }
            Ok((id, _)) => tracing::warn!(index, id, "NVML lists a GPU twice"),
            Err(error) => tracing::warn!(index, %error, "a GPU does not answer and is left out"),
        }
    }
    Ok(gpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_total_of_meminfo() {
        let text = "MemFree:  1 kB\nMemTotal:       16384256 kB\nMemAvailable: 5 kB\n";
        assert_eq!(total_bytes(text), Some(16_384_256 * 1024));
        for wrong in
            ["", "MemTotal:", "MemTotal: kB", "MemTotal: 5 MB", "MemTotal: -5 kB", "MemTotal: 18446744073709551615 kB"]
        {
            assert_eq!(total_bytes(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn this_machine_has_something() {
        let simulated: Simulated = "2xH100,1xL40S".parse().unwrap();
        let found = inventory(Some(&simulated), 77);
        assert!(found.cpu_milli >= 1000 && found.memory_bytes > 1 << 20 && found.storage_bytes == 77, "{found:?}");
        let ids: Vec<&str> = found.gpus.iter().filter(|gpu| gpu.simulated).map(|gpu| gpu.id.as_str()).collect();
        assert_eq!(ids, ["simulated-H100-0", "simulated-H100-1", "simulated-L40S-0"]);
        assert!(inventory(None, 0).gpus.iter().all(|gpu| !gpu.simulated));
    }
}
