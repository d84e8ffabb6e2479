//! GPUs that are only declared, with faults from a script.
//!
//! The script is a small TOML file, read again at every reading, so that a demonstration or a test can change it while
//! the engine runs:
//!
//! ```toml
//! [[gpu]]
//! id = "simulated-H100-0"
//! xids = [79]
//! temperature_celsius = 97
//! ```

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::Deserialize;
use tarn_model::Time;
use tarn_model::capacity::Gpu;
use tarn_model::gpus::Figures;

use super::{Answer, BrokenMemory, Probe, Reading, Readings, Slice};

/// The maximum size of a script.
const MAX_SCRIPT: u64 = 64 << 10;

/// The maximum number of slices of a GPU; real ones have at most seven.
const MAX_SLICES: usize = 16;

const GIB: u64 = 1 << 30;

/// Declared GPUs.
pub struct SimulatedProbe {
    gpus: Vec<Gpu>,
    script: Option<PathBuf>,
    /// The last valid content of the script.
    entries: Vec<Entry>,
    /// The last logged error of the script.
    complaint: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    #[serde(default)]
    gpu: Vec<Entry>,
}

/// The scripted state of one GPU.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Entry {
    id: String,
    lost: bool,
    silent: bool,
    /// Errors of the kernel log, at the time when the file was written.
    xids: Vec<u32>,
    uncorrected_errors: u64,
    remap_failed: bool,
    remap_pending: bool,
    retirement_pending: bool,
    throttled: bool,
    temperature_celsius: Option<u32>,
    utilisation_percent: Option<u32>,
    processes: Vec<u32>,
    /// The profiles of its slices, such as `1g.10gb`.
    mig: Option<Vec<String>>,
    #[serde(skip)]
    written: Time,
}

impl SimulatedProbe {
    /// Creates a probe of these GPUs, with faults from the script, if there is one.
    pub fn new(gpus: Vec<Gpu>, script: Option<PathBuf>) -> Self {
        SimulatedProbe { gpus, script, entries: Vec::new(), complaint: None }
    }

    /// An invalid script changes nothing, and is logged once.
    fn read_script(&mut self) {
        let Some(path) = &self.script else { return };
        match load_script(path) {
            Ok(entries) => (self.entries, self.complaint) = (entries, None),
            Err(complaint) if self.complaint.as_ref() == Some(&complaint) => {}
            Err(complaint) => {
                tracing::warn!(path = %path.display(), "the script of GPU faults is not used: {complaint}");
                self.complaint = Some(complaint);
            }
        }
    }
}

impl Probe for SimulatedProbe {
    fn read(&mut self) -> Readings {
        self.read_script();
        let healthy = Entry::default();
        let entry = |gpu: &Gpu| self.entries.iter().find(|entry| entry.id == gpu.id).unwrap_or(&healthy);
        Readings { gpus: self.gpus.iter().map(|gpu| simulated_reading(gpu, entry(gpu))).collect(), is_complete: true }
    }
}

fn load_script(path: &Path) -> Result<Vec<Entry>, String> {
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    let written = file.metadata().and_then(|found| found.modified()).map_err(|error| error.to_string())?;
    let written = written.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut text = String::new();
    file.take(MAX_SCRIPT + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > MAX_SCRIPT {
        return Err(format!("it is longer than {MAX_SCRIPT} bytes"));
    }
    let script: Script = toml::from_str(&text).map_err(|error| error.to_string())?;
    let written = Time::ZERO.after(written);
    Ok(script.gpu.into_iter().map(|entry| Entry { written, ..entry }).collect())
}

fn simulated_reading(gpu: &Gpu, entry: &Entry) -> Reading {
    let figures = Figures {
        temperature_celsius: Some(entry.temperature_celsius.unwrap_or(35)),
        power_milliwatts: Some(70_000),
        utilisation_percent: Some(entry.utilisation_percent.unwrap_or(0)),
        memory_used_bytes: Some(0),
        uncorrected_errors: Some(entry.uncorrected_errors),
        uncorrected_errors_ever: Some(entry.uncorrected_errors),
    };
    let answer = match (entry.lost, entry.silent) {
        (true, _) => Answer::Lost,
        (false, true) => Answer::Silent,
        (false, false) => Answer::Well,
    };
    let slice = |(number, profile): (usize, &String)| Slice {
        id: format!("{}-mig-{number}", gpu.id),
        index: None,
        profile: profile.clone(),
        memory_bytes: profile_memory_gib(profile) * GIB,
        processes: Vec::new(),
    };
    let slices = |profiles: &Vec<String>| profiles.iter().take(MAX_SLICES).enumerate().map(slice).collect();
    Reading {
        id: gpu.id.clone(),
        index: None,
        name: gpu.model.clone(),
        simulated: true,
        memory_bytes: model_memory_gib(&gpu.model) * GIB,
        driver_version: Some("simulated".into()),
        cuda_version: None,
        bus_id: None,
        // A GPU that does not respond has no figures.
        figures: if answer == Answer::Well { figures } else { Figures::default() },
        answer,
        memory: BrokenMemory {
            remap_failed: entry.remap_failed,
            remap_pending: entry.remap_pending,
            retirement_pending: entry.retirement_pending,
        },
        throttled: entry.throttled.then_some("too hot"),
        xids: entry.xids.iter().map(|code| (*code, entry.written)).collect(),
        processes: entry.processes.clone(),
        slices: entry.mig.as_ref().map(slices),
    }
}

/// The memory of a GPU of this model, in gibibytes.
fn model_memory_gib(model: &str) -> u64 {
    match model {
        "B300" => 288,
        "B200" => 192,
        "H200" => 141,
        "H100" | "A100" => 80,
        "L40S" => 48,
        _ => 24,
    }
}

/// The memory in the name of a profile: 10 of `1g.10gb`.
fn profile_memory_gib(profile: &str) -> u64 {
    let memory = profile.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    memory.strip_suffix("gb").and_then(|digits| digits.parse().ok()).unwrap_or(0).min(1024)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tarn_model::gpus::{Fault, ObservedGpu};
    use tarn_model::testing::ManualClock;

    use super::*;
    use crate::gpus::Watch;

    fn watch(script: &Path) -> Watch {
        let gpus = "2xH100".parse::<crate::host::Simulated>().unwrap().gpus();
        Watch::simulated(SimulatedProbe::new(gpus, Some(script.to_owned())), Arc::new(ManualClock::default()))
    }

    fn fault_texts(seen: &ObservedGpu) -> String {
        seen.faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn script_is_read_at_every_observation() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("faults.toml");
        let watch = watch(&script);
        let look = || watch.look(|_, _| false).seen;
        assert!(look().iter().all(|seen| seen.faults.is_empty()), "without a script nothing is wrong");
        let table = [
            ("lost = true", "it has fallen off its bus"),
            ("silent = true", "it does not respond"),
            ("xids = [13, 79, 48]", "Xid 48"),
            ("uncorrected_errors = 3", "3 memory errors could not be corrected"),
            ("remap_pending = true", "broken memory will be replaced"),
            ("remap_failed = true", "broken memory could not be replaced"),
            ("retirement_pending = true", "taken out of use"),
            ("throttled = true", "it slows itself down (too hot)"),
            ("processes = [4, 5]", "2 processes that belong to no instance use it"),
        ];
        for (line, expected) in table {
            fs::write(&script, format!("[[gpu]]\nid = \"simulated-H100-1\"\n{line}\n")).unwrap();
            let seen = look();
            assert_eq!((seen.len(), fault_texts(&seen[0]).as_str()), (2, ""), "{line}");
            assert!(fault_texts(&seen[1]).contains(expected), "{line}: {}", fault_texts(&seen[1]));
            assert!(!fault_texts(&seen[1]).contains("Xid 13"), "a fault of a program");
        }
        let before = look();
        for wrong in ["[[gpu", "[[gpu]]\nid = \"simulated-H100-0\"\nlsot = true", &"#".repeat(100_000)] {
            fs::write(&script, wrong).unwrap();
            assert_eq!(look(), before, "what cannot be understood changes nothing");
        }
        fs::write(&script, "").unwrap();
        assert!(look().iter().all(|seen| seen.faults.is_empty()));
    }

    #[test]
    fn partitioned_gpu_is_its_slices() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("faults.toml");
        let text = "[[gpu]]\nid = \"simulated-H100-0\"\nmig = [\"1g.10gb\", \"3g.40gb\"]\nthrottled = true\n";
        fs::write(&script, text).unwrap();
        let watch = watch(&script);
        let seen = watch.look(|_, _| true).seen;
        let shown: Vec<_> = seen.iter().map(|seen| (seen.gpu.id.as_str(), seen.gpu.model.as_str())).collect();
        assert_eq!(
            shown,
            [
                ("simulated-H100-0-mig-0", "H100MIG1G10GB"),
                ("simulated-H100-0-mig-1", "H100MIG3G40GB"),
                ("simulated-H100-1", "H100"),
            ]
        );
        assert_eq!(seen[1].facts.memory_bytes, 40 << 30);
        assert_eq!(seen[1].facts.parent.as_deref(), Some("simulated-H100-0"));
        assert!(fault_texts(&seen[0]).contains("slows itself down"), "slices share the faults of their GPU");
        assert_eq!(watch.last().len(), 3);
        fs::write(&script, "[[gpu]]\nid = \"simulated-H100-0\"\nmig = []\n").unwrap();
        let seen = watch.look(|_, _| true).seen;
        assert_eq!(
            (seen[0].gpu.model.as_str(), fault_texts(&seen[0]).as_str()),
            ("H100", Fault::Undivided.to_string().as_str())
        );
    }
}
