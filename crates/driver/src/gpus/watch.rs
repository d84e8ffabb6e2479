//! Observes the GPUs of this host by all probes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tarn_model::Clock;
use tarn_model::capacity::Gpu;
use tarn_model::gpus::{Facts, Fault, Figures, GpuObservation, ObservedGpu, meaning};

use super::kernel_log::{self, KernelLog};
use super::{Answer, Nvidia, Probe, Reading, Readings, SimulatedProbe};
use crate::Error;
use crate::host::short_model_name;

/// Watches the GPUs of this host.
pub struct Watch {
    inner: Mutex<Inner>,
    /// Separate from the rest, so that reading the last result does not wait for an observation.
    found: Mutex<LastLook>,
    clock: Arc<dyn Clock>,
}

struct Inner {
    real: Option<Box<dyn Probe>>,
    simulated: Option<SimulatedProbe>,
    /// Opened when there is a GPU that it could report on.
    log: Option<KernelLog>,
}

/// The result of the last observation.
#[derive(Default)]
struct LastLook {
    seen: Vec<ObservedGpu>,
    /// Alternative names of GPUs, by id.
    indexes: BTreeMap<String, String>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Watch {
    /// Watches installed and declared GPUs. Nothing is opened before the first observation.
    pub fn new(simulated: Option<SimulatedProbe>, clock: Arc<dyn Clock>) -> Self {
        Self::with_probes(Some(Box::new(Nvidia::default())), simulated, clock)
    }

    /// Watches declared GPUs only.
    pub fn simulated(probe: SimulatedProbe, clock: Arc<dyn Clock>) -> Self {
        Self::with_probes(None, Some(probe), clock)
    }

    /// Watches the real GPUs that this probe finds.
    pub fn real(probe: impl Probe + 'static, clock: Arc<dyn Clock>) -> Self {
        Self::with_probes(Some(Box::new(probe)), None, clock)
    }

    fn with_probes(real: Option<Box<dyn Probe>>, simulated: Option<SimulatedProbe>, clock: Arc<dyn Clock>) -> Self {
        let inner = Inner { real, simulated, log: None };
        Watch { inner: Mutex::new(inner), found: Mutex::default(), clock }
    }

    /// Observes every GPU, for as long as they take to respond. `is_owners` returns whether a process belongs to the
    /// owner of the GPU with an id; it is called after the GPUs were read. While an earlier observation is still
    /// running, because a GPU blocks it, this one reports all GPUs as silent.
    pub fn look(&self, is_owners: impl Fn(&str, u32) -> bool) -> GpuObservation {
        let Some(mut inner) = self.inner.try_lock() else { return self.silent_look() };
        let real = inner.real.as_mut().map(|probe| probe.read()).unwrap_or_default();
        let Readings { gpus: declared, .. } = inner.simulated.as_mut().map(Probe::read).unwrap_or_default();
        let (mut readings, mut there) = (Vec::new(), BTreeSet::new());
        for reading in real.gpus.into_iter().chain(declared) {
            if there.insert(reading.id.clone()) {
                readings.push(reading);
            } else {
                tracing::warn!(id = reading.id, "a GPU is listed twice");
            }
        }
        inner.add_xids(&mut readings, &*self.clock);
        let indexes = readings.iter().flat_map(vendor_indexes).collect();
        let seen: Vec<ObservedGpu> =
            readings.into_iter().flat_map(|reading| observed_gpus(reading, &is_owners)).collect();
        *self.last_look() = LastLook { seen: seen.clone(), indexes };
        GpuObservation { seen, all_real: real.is_complete, all_simulated: true }
    }

    /// Like [`Watch::look`], but gives up after `limit`. What blocks does so on a separate thread, for which the
    /// program does not wait at its end; there is at most one such thread.
    pub async fn look_within(
        self: &Arc<Self>,
        limit: Duration,
        is_owners: impl Fn(&str, u32) -> bool + Send + 'static,
    ) -> Result<GpuObservation, Error> {
        let (watch, (answer, answered)) = (self.clone(), tokio::sync::oneshot::channel());
        let thread = std::thread::Builder::new().name("gpus".into());
        let started = thread.spawn(move || drop(answer.send(watch.look(is_owners))));
        started.map_err(|error| Error::Retry(format!("the GPUs could not be observed: {error}")))?;
        match tokio::time::timeout(limit, answered).await {
            Ok(Ok(look)) => Ok(look),
            Ok(Err(_)) => Err(Error::Retry("observing the GPUs failed; see the engine's log".into())),
            Err(_) => Err(Error::Retry("a GPU blocks the observation of all of them".into())),
        }
    }

    /// Returns the names of a GPU in specifications of its vendor, the preferred one first.
    pub fn names(&self, id: &str) -> Vec<String> {
        std::iter::once(id.to_owned()).chain(self.last_look().indexes.get(id).cloned()).collect()
    }

    /// Returns the GPUs that were last observed.
    pub fn last(&self) -> Vec<Gpu> {
        self.last_look().seen.iter().map(|seen| seen.gpu.clone()).collect()
    }

    fn silent_look(&self) -> GpuObservation {
        let mut seen = self.last_look().seen.clone();
        seen.iter_mut().for_each(|seen| seen.faults.push(Fault::Silent));
        GpuObservation { seen, all_real: false, all_simulated: false }
    }

    fn last_look(&self) -> MutexGuard<'_, LastLook> {
        self.found.lock()
    }
}

impl Inner {
    /// Adds the errors of the kernel log to the GPUs with a known PCI address.
    fn add_xids(&mut self, readings: &mut [Reading], clock: &dyn Clock) {
        if !readings.iter().any(|reading| reading.bus_id.is_some()) {
            return;
        }
        let log = self.log.get_or_insert_with(KernelLog::open);
        let xids: Vec<_> = log.read(clock).cloned().collect();
        for reading in readings {
            let Some(bus) = reading.bus_id.as_deref().map(kernel_log::normalise_bus) else { continue };
            reading.xids.extend(xids.iter().filter(|xid| xid.bus == bus).map(|xid| (xid.code, xid.at)));
        }
    }
}

/// Returns the alternative names of a GPU and its slices.
fn vendor_indexes(reading: &Reading) -> Vec<(String, String)> {
    let slices = reading.slices.iter().flatten().map(|slice| (&slice.id, &slice.index));
    let all = slices.chain([(&reading.id, &reading.index)]);
    all.filter_map(|(id, index)| Some((id.clone(), index.clone()?))).collect()
}

/// Returns a GPU or, if it is partitioned, its slices, which share its faults.
fn observed_gpus(reading: Reading, is_owners: &impl Fn(&str, u32) -> bool) -> Vec<ObservedGpu> {
    let model = if reading.simulated { reading.name.clone() } else { short_model_name(&reading.name) };
    let (facts, common, is_to_be_divided) = (gpu_facts(&reading), gpu_faults(&reading), reading.slices.is_some());
    let foreign = |id: &str, processes: &[u32]| {
        let count = processes.iter().filter(|pid| !is_owners(id, **pid)).count();
        (count > 0).then_some(Fault::Foreign(count))
    };
    let Some(slices) = reading.slices.filter(|slices| !slices.is_empty()) else {
        let undivided = is_to_be_divided.then_some(Fault::Undivided);
        let faults = common.into_iter().chain(undivided).chain(foreign(&reading.id, &reading.processes)).collect();
        let gpu = Gpu { id: reading.id, model, simulated: reading.simulated };
        return vec![ObservedGpu { gpu, facts, figures: reading.figures, faults }];
    };
    let slice = |slice: super::Slice| {
        let profile: String = slice.profile.to_ascii_uppercase().chars().filter(char::is_ascii_alphanumeric).collect();
        let facts = Facts { memory_bytes: slice.memory_bytes, parent: Some(reading.id.clone()), ..facts.clone() };
        // The figures of the GPU are not those of the slice alone.
        let figures = Figures { memory_used_bytes: None, utilisation_percent: None, ..reading.figures.clone() };
        let faults = common.iter().cloned().chain(foreign(&slice.id, &slice.processes)).collect();
        let gpu = Gpu { id: slice.id, model: format!("{model}MIG{profile}"), simulated: reading.simulated };
        ObservedGpu { gpu, facts, figures, faults }
    };
    slices.into_iter().map(slice).collect()
}

fn gpu_facts(reading: &Reading) -> Facts {
    Facts {
        memory_bytes: reading.memory_bytes,
        driver_version: reading.driver_version.clone(),
        cuda_version: reading.cuda_version.clone(),
        bus_id: reading.bus_id.clone(),
        parent: None,
    }
}

fn gpu_faults(reading: &Reading) -> Vec<Fault> {
    let mut faults = Vec::new();
    match reading.answer {
        Answer::Well => {}
        Answer::Lost => faults.push(Fault::Lost),
        Answer::Silent => faults.push(Fault::Silent),
    }
    let fatal = reading.xids.iter().filter(|(code, _)| meaning(*code).is_some());
    // The newest of each kind: an older one may have been cleared by the operator.
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

    use tarn_model::testing::ManualClock;

    use super::*;

    /// A GPU that reports when it is read, and responds when the test lets it.
    struct Slow(Sender<()>, Receiver<()>);

    impl Probe for Slow {
        fn read(&mut self) -> Readings {
            self.0.send(()).unwrap();
            self.1.recv().unwrap();
            Readings { gpus: vec![gpu("GPU-1", None)], is_complete: true }
        }
    }

    /// A probe that always returns the same readings.
    struct Fixed(Readings);

    impl Probe for Fixed {
        fn read(&mut self) -> Readings {
            self.0.clone()
        }
    }

    fn gpu(id: &str, bus: Option<&str>) -> Reading {
        let (id, name, bus_id) = (id.into(), "NVIDIA H100".into(), bus.map(str::to_owned));
        Reading { id, name, bus_id, ..Reading::default() }
    }

    #[test]
    fn blocking_gpu_is_silent() {
        let ((asked, is_asked), (answer, answered)) = (channel(), channel());
        let watch = Watch::real(Slow(asked, answered), Arc::new(ManualClock::default()));
        answer.send(()).unwrap();
        assert_eq!(watch.look(|_, _| true).seen[0].faults, []);
        is_asked.recv().unwrap();
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| watch.look(|_, _| true));
            is_asked.recv().unwrap();
            let look = watch.look(|_, _| true);
            assert_eq!((look.seen[0].faults.as_slice(), look.all_real), ([Fault::Silent].as_slice(), false));
            assert_eq!(watch.last()[0].model, "H100", "what there is can be asked all the same");
            answer.send(()).unwrap();
            let look = slow.join().unwrap();
            assert_eq!((look.seen[0].faults.as_slice(), look.all_real), ([].as_slice(), true));
        });
    }

    #[tokio::test]
    async fn observation_has_a_timeout() {
        let ((asked, is_asked), (answer, answered)) = (channel(), channel());
        let watch = Arc::new(Watch::real(Slow(asked, answered), Arc::new(ManualClock::default())));
        let late = watch.look_within(Duration::from_millis(1), |_, _| true).await.unwrap_err();
        assert!(late.to_string().contains("blocks the observation"), "{late}");
        is_asked.recv().unwrap();
        let look = watch.look_within(Duration::from_secs(60), |_, _| true).await.unwrap();
        assert_eq!(look, GpuObservation::default(), "nothing is known yet");
        answer.send(()).unwrap();
        let comes = async {
            while watch.last().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let came = tokio::time::timeout(Duration::from_secs(60), comes).await;
        assert!(came.is_ok(), "what comes late is taken all the same");
    }

    #[test]
    fn xids_belong_to_the_right_gpu() {
        let gpus = [("GPU-1", Some("00000000:01:00.0")), ("GPU-2", Some("00000000:3B:00.0")), ("GPU-3", None)];
        let gpus = gpus.map(|(id, bus)| gpu(id, bus)).into();
        let watch = Watch::real(Fixed(Readings { gpus, is_complete: true }), Arc::new(ManualClock::default()));
        let record = b"4,1,1,-;NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 95, pid=1\n";
        watch.inner.lock().log = Some(KernelLog::over(record.as_slice()));
        let faults: Vec<_> = watch.look(|_, _| true).seen.into_iter().map(|seen| seen.faults).collect();
        assert!(
            matches!(faults.as_slice(), [first, second, third] if first.is_empty() && third.is_empty()
            && matches!(second.as_slice(), [Fault::Xid { code: 95, .. }])),
            "{faults:?}"
        );
    }

    #[test]
    fn incomplete_readings_report_no_losses() {
        let (watch, all) =
            (|readings| Watch::real(Fixed(readings), Arc::new(ManualClock::default())), |_: &str, _| true);
        assert_eq!(
            watch(Readings::default()).look(all),
            GpuObservation { all_simulated: true, ..GpuObservation::default() }
        );
        assert_eq!(
            watch(Readings { is_complete: true, ..Readings::default() }).look(all),
            GpuObservation::complete(Vec::new())
        );
    }
}
