//! What all looks at the GPUs of this machine have in common.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use tarn_model::Clock;
use tarn_model::capacity::Gpu;
use tarn_model::gpus::{Facts, Fault, Figures, Seen, meaning};

use super::kernel_log::{self, KernelLog};
use super::{Answer, Nvidia, Probe, Reading, SimulatedProbe};
use crate::machine::normalised;

/// Watches the GPUs of this machine. A look blocks for as long as the GPUs take to answer.
pub struct Watch {
    inner: Mutex<Inner>,
    /// Apart from the rest, so that nobody has to wait for a look to ask what the last one found.
    found: Mutex<Found>,
    clock: Arc<dyn Clock>,
}

struct Inner {
    probes: Vec<Box<dyn Probe>>,
    log: KernelLog,
    /// All that were ever there while this watched, as they were last.
    known: BTreeMap<String, Reading>,
}

/// What the last look found.
#[derive(Default)]
struct Found {
    seen: Vec<Seen>,
    /// What else they are called.
    indexes: BTreeMap<String, String>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Watch {
    /// Watches what is installed, and what is declared.
    pub fn new(simulated: Option<SimulatedProbe>, clock: Arc<dyn Clock>) -> Self {
        let nvidia = Nvidia::open();
        let log = if nvidia.is_some() { KernelLog::open() } else { KernelLog::none() };
        let mut probes: Vec<Box<dyn Probe>> = Vec::new();
        probes.extend(nvidia.map(|probe| Box::new(probe) as Box<dyn Probe>));
        probes.extend(simulated.map(|probe| Box::new(probe) as Box<dyn Probe>));
        Self::over(probes, log, clock)
    }

    /// Watches declared GPUs only.
    pub fn simulated(probe: SimulatedProbe, clock: Arc<dyn Clock>) -> Self {
        Self::over(vec![Box::new(probe)], KernelLog::none(), clock)
    }

    fn over(probes: Vec<Box<dyn Probe>>, log: KernelLog, clock: Arc<dyn Clock>) -> Self {
        let inner = Inner { probes, log, known: BTreeMap::new() };
        Watch { inner: Mutex::new(inner), found: Mutex::default(), clock }
    }

    /// Looks at every GPU. `is_owners` says whether a process belongs to the one who owns the GPU of an id.
    /// While a look has not ended, because a GPU keeps it waiting, another one can only say that they do not answer.
    pub fn look(&self, is_owners: impl Fn(&str, u32) -> bool) -> Vec<Seen> {
        let mut inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return self.silent(),
        };
        let mut readings: Vec<Reading> = Vec::new();
        let mut there = BTreeSet::new();
        for reading in inner.probes.iter_mut().flat_map(|probe| probe.read()) {
            if there.insert(reading.id.clone()) {
                readings.push(reading);
            } else {
                tracing::warn!(id = reading.id, "a GPU is listed twice");
            }
        }
        // One that was there and is not even listed any more is lost, and it must not seem that there never was one.
        let missing = inner.known.values().filter(|known| !there.contains(&known.id));
        let lost: Vec<Reading> = missing.map(|known| Reading { answer: Answer::Lost, ..quiet(known) }).collect();
        readings.extend(lost);
        inner.known = readings.iter().map(|reading| (reading.id.clone(), reading.clone())).collect();
        let xids: Vec<_> = inner.log.read(&*self.clock).cloned().collect();
        for reading in &mut readings {
            let Some(bus) = reading.bus_id.as_deref().map(kernel_log::normalised) else { continue };
            reading.xids.extend(xids.iter().filter(|xid| xid.bus == bus).map(|xid| (xid.code, xid.at)));
        }
        let indexes = readings.iter().flat_map(indexes).collect();
        let seen: Vec<Seen> = readings.into_iter().flat_map(|reading| seen(reading, &is_owners)).collect();
        *self.found() = Found { seen: seen.clone(), indexes };
        seen
    }

    /// The names that a GPU has in specifications of its vendor, the best first.
    pub fn names(&self, id: &str) -> Vec<String> {
        std::iter::once(id.to_owned()).chain(self.found().indexes.get(id).cloned()).collect()
    }

    /// What the last look found.
    pub fn last(&self) -> Vec<Gpu> {
        self.found().seen.iter().map(|seen| seen.gpu.clone()).collect()
    }

    fn silent(&self) -> Vec<Seen> {
        let mut seen = self.found().seen.clone();
        seen.iter_mut().for_each(|seen| seen.faults.push(Fault::Silent));
        seen
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a GPU and its slices are called besides.
fn indexes(reading: &Reading) -> Vec<(String, String)> {
    let slices = reading.slices.iter().flatten().map(|slice| (&slice.id, &slice.index));
    let all = slices.chain([(&reading.id, &reading.index)]);
    all.filter_map(|(id, index)| Some((id.clone(), index.clone()?))).collect()
}

/// A reading without what was only true when it was made.
fn quiet(known: &Reading) -> Reading {
    let (processes, figures) = (Vec::new(), Figures::default());
    Reading { processes, figures, xids: Vec::new(), throttled: None, ..known.clone() }
}

/// A GPU, or instead of one that is divided its slices, which share its faults.
fn seen(reading: Reading, is_owners: &impl Fn(&str, u32) -> bool) -> Vec<Seen> {
    let model = if reading.simulated { reading.name.clone() } else { normalised(&reading.name) };
    let (facts, common) = (facts(&reading), faults(&reading));
    let foreign = |id: &str, processes: &[u32]| {
        let count = processes.iter().filter(|pid| !is_owners(id, **pid)).count();
        (count > 0).then_some(Fault::Foreign(count))
    };
    let Some(slices) = reading.slices else {
        let faults = common.into_iter().chain(foreign(&reading.id, &reading.processes)).collect();
        let gpu = Gpu { id: reading.id, model, simulated: reading.simulated };
        return vec![Seen { gpu, facts, figures: reading.figures, faults }];
    };
    let slice = |slice: super::Slice| {
        let profile: String = slice.profile.to_ascii_uppercase().chars().filter(char::is_ascii_alphanumeric).collect();
        let facts = Facts { memory_bytes: slice.memory_bytes, parent: Some(reading.id.clone()), ..facts.clone() };
        // What its GPU measures is not the slice's alone.
        let figures = Figures { memory_used_bytes: None, utilisation_percent: None, ..reading.figures.clone() };
        let faults = common.iter().cloned().chain(foreign(&slice.id, &slice.processes)).collect();
        let gpu = Gpu { id: slice.id, model: format!("{model}MIG{profile}"), simulated: reading.simulated };
        Seen { gpu, facts, figures, faults }
    };
    slices.into_iter().map(slice).collect()
}

fn facts(reading: &Reading) -> Facts {
    Facts {
        memory_bytes: reading.memory_bytes,
        driver_version: reading.driver_version.clone(),
        cuda_version: reading.cuda_version.clone(),
        bus_id: reading.bus_id.clone(),
        parent: None,
    }
}

fn faults(reading: &Reading) -> Vec<Fault> {
    let mut faults = Vec::new();
    match reading.answer {
        Answer::Well => {}
        Answer::Lost => faults.push(Fault::Lost),
        Answer::Silent => faults.push(Fault::Silent),
    }
    let fatal = reading.xids.iter().filter(|(code, _)| meaning(*code).is_some());
    // The newest of each kind: what an operator has cleared is older.
    let newest: BTreeMap<u32, _> = fatal.copied().collect::<BTreeSet<_>>().into_iter().collect();
    faults.extend(newest.into_iter().map(|(code, at)| Fault::Xid { code, at }));
    let uncorrected = reading.figures.uncorrected_errors.filter(|count| *count > 0);
    faults.extend(uncorrected.map(Fault::UncorrectedErrors));
    let memory = reading.memory;
    faults.extend(memory.remap_failed.then_some(Fault::RemapFailed));
    faults.extend(memory.remap_pending.then_some(Fault::RemapPending));
    faults.extend(memory.retirement_pending.then_some(Fault::RetirementPending));
    faults.extend(reading.throttled.map(Fault::Throttled));
    faults
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use tarn_model::Time;

    use super::*;

    struct Stopped;

    impl Clock for Stopped {
        fn now(&self) -> Time {
            Time::from_micros(1)
        }
    }

    /// A GPU that says that it is asked, and answers when it is told to.
    struct Slow(Sender<()>, Receiver<()>);

    impl Probe for Slow {
        fn read(&mut self) -> Vec<Reading> {
            self.0.send(()).unwrap();
            self.1.recv().unwrap();
            vec![Reading { id: "GPU-1".into(), name: "NVIDIA H100".into(), ..Reading::default() }]
        }
    }

    #[test]
    fn a_gpu_that_keeps_a_look_waiting_does_not_answer() {
        let ((asked, is_asked), (answer, answered)) = (channel(), channel());
        let watch = Watch::over(vec![Box::new(Slow(asked, answered))], KernelLog::none(), Arc::new(Stopped));
        answer.send(()).unwrap();
        assert_eq!(watch.look(|_, _| true)[0].faults, []);
        is_asked.recv().unwrap();
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| watch.look(|_, _| true));
            is_asked.recv().unwrap();
            assert_eq!(watch.look(|_, _| true)[0].faults, [Fault::Silent]);
            assert_eq!(watch.last()[0].model, "H100", "what there is can be asked all the same");
            answer.send(()).unwrap();
            assert_eq!(slow.join().unwrap()[0].faults, []);
        });
    }
}
