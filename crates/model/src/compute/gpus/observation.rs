//! An observation of all GPUs of the host, and what it means for known GPUs that were not seen.

use std::collections::{BTreeMap, BTreeSet};

use super::{Fault, Figures, GpuRecord, ObservedGpu};
use crate::capacity::Gpu;

/// What one observation of the GPUs of the host found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuObservation {
    pub seen: Vec<ObservedGpu>,
    /// Whether all real GPUs were queried: then a real GPU that was not seen does not exist.
    pub all_real: bool,
    /// The same for the GPUs that are declared by the operator.
    pub all_simulated: bool,
}

/// What an observation means for the GPUs that were not seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// The GPUs that should exist: they are lost, or nothing is known of them now.
    pub missed: Vec<ObservedGpu>,
    /// The slices that no longer exist because their GPU is divided in another way: their rows are obsolete.
    pub gone: Vec<String>,
}

impl GpuObservation {
    /// Returns an observation that found every GPU.
    pub fn complete(seen: Vec<ObservedGpu>) -> Self {
        GpuObservation { seen, all_real: true, all_simulated: true }
    }

    /// Returns what this observation means for known GPUs that were not seen; `is_owned` tells which of them have an
    /// owner, `is_listed` which were present or missed until now.
    ///
    /// A real GPU is missed until an operator clears it: a broken GPU must not disappear silently. A GPU with an owner
    /// is always missed, and so is every listed GPU while the query fails. A declared GPU exists for as long as it is
    /// declared.
    pub fn unseen(
        &self,
        known: &BTreeMap<String, GpuRecord>,
        is_owned: impl Fn(&str) -> bool,
        is_listed: impl Fn(&str) -> bool,
    ) -> Unseen {
        let seen: BTreeSet<&str> = self.seen.iter().map(|seen| seen.gpu.id.as_str()).collect();
        let parents: BTreeSet<&str> = self.seen.iter().filter_map(|seen| seen.facts.parent.as_deref()).collect();
        let absent = || known.values().filter(|known| !seen.contains(known.gpu.id.as_str()));
        let is_gone = |known: &GpuRecord| {
            let is_there = |parent: &String| seen.contains(parent.as_str()) || parents.contains(parent.as_str());
            self.covers(&known.gpu) && known.facts.parent.as_ref().is_some_and(is_there)
        };
        // Of a divided GPU, the slices are missed and not the GPU itself.
        let slices = absent().filter(|known| !is_gone(known)).filter_map(|known| known.facts.parent.as_deref());
        let divided: BTreeSet<&str> = slices.chain(parents.iter().copied()).collect();
        let mut unseen = Unseen::default();
        for known in absent() {
            let id = known.gpu.id.as_str();
            let is_silent = !self.covers(&known.gpu);
            let should_be_there = !divided.contains(id) && (!known.gpu.simulated || is_silent && is_listed(id));
            match (is_owned(id), is_gone(known)) {
                (true, _) => unseen.missed.push(missed_gpu(known, is_silent)),
                (false, true) => unseen.gone.push(id.to_owned()),
                (false, false) if should_be_there => unseen.missed.push(missed_gpu(known, is_silent)),
                (false, false) => {}
            }
        }
        unseen
    }

    fn covers(&self, gpu: &Gpu) -> bool {
        if gpu.simulated { self.all_simulated } else { self.all_real }
    }
}

fn missed_gpu(known: &GpuRecord, is_silent: bool) -> ObservedGpu {
    let fault = if is_silent { Fault::Silent } else { Fault::Lost };
    ObservedGpu { gpu: known.gpu.clone(), facts: known.facts.clone(), figures: Figures::default(), faults: vec![fault] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpus::Facts;

    fn gpu(id: &str, simulated: bool) -> ObservedGpu {
        ObservedGpu::plain(Gpu { id: id.into(), model: "H100".into(), simulated })
    }

    fn slice(id: &str, parent: &str) -> ObservedGpu {
        ObservedGpu { facts: Facts { parent: Some(parent.into()), ..Facts::default() }, ..gpu(id, false) }
    }

    fn rows(seen: &[ObservedGpu]) -> BTreeMap<String, GpuRecord> {
        seen.iter().map(|seen| (seen.gpu.id.clone(), GpuRecord::new(seen))).collect()
    }

    /// The GPUs that are missed, with their faults, and those that are gone.
    fn missed_and_gone(
        look: &GpuObservation,
        known: &[ObservedGpu],
        owned: &[&str],
    ) -> (Vec<(String, Fault)>, Vec<String>) {
        let unseen = look.unseen(&rows(known), |id| owned.contains(&id), |id| id == "declared");
        let missed = unseen.missed.into_iter().map(|seen| (seen.gpu.id, seen.faults[0].clone()));
        (missed.collect(), unseen.gone)
    }

    #[test]
    fn unseen_real_gpu_is_lost_or_silent() {
        let known = [gpu("GPU-1", false), gpu("GPU-2", false), gpu("declared", true)];
        let look = GpuObservation::complete(vec![gpu("GPU-1", false)]);
        assert_eq!(missed_and_gone(&look, &known, &[]), (vec![("GPU-2".into(), Fault::Lost)], vec![]));
        let look = GpuObservation { all_real: false, ..look };
        assert_eq!(missed_and_gone(&look, &known, &[]), (vec![("GPU-2".into(), Fault::Silent)], vec![]));
        let (missed, _) = missed_and_gone(&GpuObservation::default(), &known, &[]);
        let silent = ["GPU-1", "GPU-2", "declared"].map(|id| (id.to_owned(), Fault::Silent));
        assert_eq!(missed, silent, "no query succeeded");
    }

    #[test]
    fn declared_gpu_is_missed_by_owner_only() {
        let known = [gpu("declared", true)];
        assert_eq!(missed_and_gone(&GpuObservation::complete(vec![]), &known, &[]), (vec![], vec![]));
        let (missed, _) = missed_and_gone(&GpuObservation::complete(vec![]), &known, &["declared"]);
        assert_eq!(missed, [("declared".to_owned(), Fault::Lost)]);
    }

    #[test]
    fn slices_follow_division_of_gpu() {
        let known = [gpu("GPU-1", false), slice("MIG-1", "GPU-1"), slice("MIG-2", "GPU-1")];
        let divided = GpuObservation::complete(vec![slice("MIG-3", "GPU-1")]);
        assert_eq!(
            missed_and_gone(&divided, &known, &[]),
            (vec![], vec!["MIG-1".into(), "MIG-2".into()]),
            "it is not lost itself"
        );
        let (missed, gone) = missed_and_gone(&divided, &known, &["MIG-1"]);
        assert_eq!((missed, gone), (vec![("MIG-1".into(), Fault::Lost)], vec!["MIG-2".into()]));
        let whole = GpuObservation::complete(vec![gpu("GPU-1", false)]);
        assert_eq!(missed_and_gone(&whole, &known, &[]).1, ["MIG-1", "MIG-2"]);
        let (missed, gone) = missed_and_gone(&GpuObservation::complete(vec![]), &known, &[]);
        let lost = ["MIG-1", "MIG-2"].map(|id| (id.to_owned(), Fault::Lost));
        assert_eq!((missed.as_slice(), gone.len()), (lost.as_slice(), 0), "the GPU is lost with all of its slices");
        let query_failed = GpuObservation { all_real: false, ..divided };
        assert_eq!(missed_and_gone(&query_failed, &known, &[]).1, Vec::<String>::new(), "they may exist");
    }
}
