//! The inventory of this host: its cores, its memory, its GPUs, and GPUs that are only declared.

mod models;
mod simulated;

use std::{fs, io, thread};

use tarn_model::capacity::{Gpu, Inventory};

pub use models::short_model_name;
pub use simulated::{Malformed, Simulated};

/// Returns the inventory of this host. What cannot be determined counts as absent, and is logged. The caller provides
/// the GPUs, which [`crate::gpus::Watch`] observes, and the storage, which depends on where volumes are kept.
pub fn inventory(gpus: Vec<Gpu>, storage_bytes: u64) -> Inventory {
    Inventory { cpu_milli: available_cpu_milli(), memory_bytes: total_memory_bytes(), gpus, storage_bytes }
}

/// Returns the cores that this process may use; the limits of a container make them fewer than the host's.
fn available_cpu_milli() -> u64 {
    match thread::available_parallelism() {
        Ok(cores) => cores.get() as u64 * 1000,
        Err(error) => {
            tracing::warn!(%error, "the number of cores is unknown and counts as one");
            1000
        }
    }
}

fn total_memory_bytes() -> u64 {
    let total = fs::read_to_string("/proc/meminfo").and_then(|text| {
        parse_mem_total(&text)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/meminfo has no MemTotal in kB"))
    });
    total.unwrap_or_else(|error| {
        tracing::warn!(%error, "the host's memory is unknown and counts as none");
        0
    })
}

fn parse_mem_total(meminfo: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_total_is_parsed() {
        let text = "MemFree:  1 kB\nMemTotal:       16384256 kB\nMemAvailable: 5 kB\n";
        assert_eq!(parse_mem_total(text), Some(16_384_256 * 1024));
        for wrong in
            ["", "MemTotal:", "MemTotal: kB", "MemTotal: 5 MB", "MemTotal: -5 kB", "MemTotal: 18446744073709551615 kB"]
        {
            assert_eq!(parse_mem_total(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn inventory_of_this_host_is_not_empty() {
        let simulated: Simulated = "2xH100,1xL40S".parse().unwrap();
        let found = inventory(simulated.gpus(), 77);
        assert!(found.cpu_milli >= 1000 && found.memory_bytes > 1 << 20 && found.storage_bytes == 77, "{found:?}");
        let ids: Vec<&str> = found.gpus.iter().filter(|gpu| gpu.simulated).map(|gpu| gpu.id.as_str()).collect();
        assert_eq!(ids, ["simulated-H100-0", "simulated-H100-1", "simulated-L40S-0"]);
    }
}
