//! The inventory of this host: its cores, its memory, its GPUs, and GPUs that are only declared.

mod simulated;

use std::fs;
use std::io;
use std::thread;

use tarn_model::capacity::{Gpu, Inventory};

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

/// Words in a full name that are not part of the model: vendor, form factor, edition.
const NOISE: [&str; 17] = [
    "NVIDIA",
    "TESLA",
    "QUADRO",
    "GEFORCE",
    "GRAPHICS",
    "GPU",
    "LAPTOP",
    "GENERATION",
    "BLACKWELL",
    "WORKSTATION",
    "SERVER",
    "EDITION",
    "PCIE",
    "NVL",
    "AC",
    "CEC",
    "OAM",
];

const LONGEST: usize = 16;

/// Derives the short name of a model from the name that NVML reports: `NVIDIA H100 80GB HBM3` is `H100`. At most 16
/// upper-case letters and digits; `GPU` where nothing else is left.
pub fn short_model_name(name: &str) -> String {
    let upper = name.to_ascii_uppercase();
    let words = upper.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !is_noise(word));
    let model: String = words.flat_map(str::chars).take(LONGEST).collect();
    if model.is_empty() { "GPU".into() } else { model }
}

/// Besides the listed words: the size and kind of the memory, `80GB` and `HBM3`, and the socket, `SXM4`.
fn is_noise(word: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    NOISE.contains(&word)
        || word.strip_suffix("GB").is_some_and(digits)
        || word.starts_with("HBM")
        || word.strip_prefix("SXM").is_some_and(|rest| rest.is_empty() || digits(rest))
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

    #[test]
    fn models_have_short_names() {
        let table = [
            ("NVIDIA H100 80GB HBM3", "H100"),
            ("NVIDIA H100 PCIe", "H100"),
            ("NVIDIA H100 NVL", "H100"),
            ("NVIDIA H200", "H200"),
            ("NVIDIA B200", "B200"),
            ("NVIDIA B300 SXM6 AC", "B300"),
            ("NVIDIA GH200 480GB", "GH200"),
            ("NVIDIA GB200", "GB200"),
            ("NVIDIA A100-SXM4-40GB", "A100"),
            ("NVIDIA A100 80GB PCIe", "A100"),
            ("Tesla V100-SXM2-16GB", "V100"),
            ("Tesla T4", "T4"),
            ("NVIDIA A10G", "A10G"),
            ("NVIDIA L4", "L4"),
            ("NVIDIA L40S", "L40S"),
            ("NVIDIA GeForce RTX 4090", "RTX4090"),
            ("NVIDIA GeForce RTX 4070 Ti SUPER", "RTX4070TISUPER"),
            ("NVIDIA GeForce RTX 3080 Laptop GPU", "RTX3080"),
            ("NVIDIA RTX A6000", "RTXA6000"),
            ("NVIDIA RTX 6000 Ada Generation", "RTX6000ADA"),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTXPRO6000"),
            ("Some Thing Of A Very Long Name", "SOMETHINGOFAVERY"),
            ("NVIDIA Graphics", "GPU"),
            ("", "GPU"),
            ("é\0", "GPU"),
        ];
        for (name, model) in table {
            assert_eq!(short_model_name(name), model, "{name}");
        }
    }
}
