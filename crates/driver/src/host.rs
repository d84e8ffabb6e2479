//! What this machine has to give: its cores, its memory, its GPUs, and GPUs that are only declared.

mod models;
mod simulated;

use std::{fs, io, thread};

use tarn_model::capacity::{Gpu, Inventory};

pub use models::normalised;
pub use simulated::{Malformed, Simulated};

/// Looks at this machine. What cannot be found out counts as not there, and is logged. Its GPUs and the storage that volumes
/// may promise are the caller's to say: [`crate::gpus::Watch`] knows the ones, and the other depends on where volumes are kept.
pub fn inventory(gpus: Vec<Gpu>, storage_bytes: u64) -> Inventory {
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
        let found = inventory(simulated.gpus(), 77);
        assert!(found.cpu_milli >= 1000 && found.memory_bytes > 1 << 20 && found.storage_bytes == 77, "{found:?}");
        let ids: Vec<&str> = found.gpus.iter().filter(|gpu| gpu.simulated).map(|gpu| gpu.id.as_str()).collect();
        assert_eq!(ids, ["simulated-H100-0", "simulated-H100-1", "simulated-L40S-0"]);
    }
}
