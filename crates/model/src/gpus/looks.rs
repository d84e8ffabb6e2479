//! A look at all GPUs of a machine, and what it means for those that are known and were not seen.

use std::collections::{BTreeMap, BTreeSet};

use super::{Fault, Figures, Known, Seen};
use crate::capacity::Gpu;

/// What one look at the GPUs of a machine found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The GPUs that were seen.
    pub seen: Vec<Seen>,
    /// Whether all real ones were asked about: one that is not among them is not there then.
    pub all_real: bool,
    /// The same of those that are only declared.
    pub all_simulated: bool,
}

/// What a look means for those that were not seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// Those that should be there: they are lost, or nothing is known of them now.
    pub missed: Vec<Seen>,
    /// The slices that are no more, because their GPU is divided in another way: their rows say nothing any more.
    pub gone: Vec<String>,
}

impl Look {
    /// A look that found everything there is.
    pub fn complete(seen: Vec<Seen>) -> Self {
        Look { seen, all_real: true, all_simulated: true }
    }

    /// What this look means for those that are known and were not seen; `is_owned` says who has an owner, `is_listed` which
    /// were there or missed until now.
    ///
    /// A real one is missed until an operator clears it: a broken one must not look as if it had never been there. One that has
    /// an owner is missed whatever it is, and so is everything that was listed while nobody answers. A declared one is there for as
    /// long as it is declared.
    pub fn unseen(
        &self,
        known: &BTreeMap<String, Known>,
        is_owned: impl Fn(&str) -> bool,
        is_listed: impl Fn(&str) -> bool,
    ) -> Unseen {
        let seen: BTreeSet<&str> = self.seen.iter().map(|seen| seen.gpu.id.as_str()).collect();
        let parents: BTreeSet<&str> = self.seen.iter().filter_map(|seen| seen.facts.parent.as_deref()).collect();
        let absent = || known.values().filter(|known| !seen.contains(known.gpu.id.as_str()));
        let is_gone = |known: &Known| {
            let is_there = |parent: &String| seen.contains(parent.as_str()) || parents.contains(parent.as_str());
            self.covers(&known.gpu) && known.facts.parent.as_ref().is_some_and(is_there)
        };
        // Of one that is or was divided, its slices are missed.
        let slices = absent().filter(|known| !is_gone(known)).filter_map(|known| known.facts.parent.as_deref());
        let divided: BTreeSet<&str> = slices.chain(parents.iter().copied()).collect();
        let mut unseen = Unseen::default();
        for known in absent() {
            let id = known.gpu.id.as_str();
            let is_silent = !self.covers(&known.gpu);
            let should_be_there = !divided.contains(id) && (!known.gpu.simulated || is_silent && is_listed(id));
            match (is_owned(id), is_gone(known)) {
                (true, _) => unseen.missed.push(missed(known, is_silent)),
                (false, true) => unseen.gone.push(id.to_owned()),
                (false, false) if should_be_there => unseen.missed.push(missed(known, is_silent)),
                (false, false) => {}
            }
        }
        unseen
    }

    fn covers(&self, gpu: &Gpu) -> bool {
        if gpu.simulated { self.all_simulated } else { self.all_real }
    }
}

fn missed(known: &Known, is_silent: bool) -> Seen {
    let fault = if is_silent { Fault::Silent } else { Fault::Lost };
    Seen { gpu: known.gpu.clone(), facts: known.facts.clone(), figures: Figures::default(), faults: vec![fault] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpus::Facts;

    fn gpu(id: &str, simulated: bool) -> Seen {
        Seen::plain(Gpu { id: id.into(), model: "H100".into(), simulated })
    }

    fn slice(id: &str, parent: &str) -> Seen {
        Seen { facts: Facts { parent: Some(parent.into()), ..Facts::default() }, ..gpu(id, false) }
    }

    fn rows(seen: &[Seen]) -> BTreeMap<String, Known> {
        seen.iter().map(|seen| (seen.gpu.id.clone(), Known::new(seen))).collect()
    }

    /// Who is missed with which fault, and who is gone.
    fn told(look: &Look, known: &[Seen], owned: &[&str]) -> (Vec<(String, Fault)>, Vec<String>) {
        let unseen = look.unseen(&rows(known), |id| owned.contains(&id), |id| id == "declared");
        let missed = unseen.missed.into_iter().map(|seen| (seen.gpu.id, seen.faults[0].clone()));
        (missed.collect(), unseen.gone)
    }

    #[test]
    fn a_real_one_that_is_not_seen_is_lost_or_silent() {
        let known = [gpu("GPU-1", false), gpu("GPU-2", false), gpu("declared", true)];
        let look = Look::complete(vec![gpu("GPU-1", false)]);
        assert_eq!(told(&look, &known, &[]), (vec![("GPU-2".into(), Fault::Lost)], vec![]));
        let look = Look { all_real: false, ..look };
        assert_eq!(told(&look, &known, &[]), (vec![("GPU-2".into(), Fault::Silent)], vec![]));
        let (missed, _) = told(&Look::default(), &known, &[]);
        let silent = ["GPU-1", "GPU-2", "declared"].map(|id| (id.to_owned(), Fault::Silent));
        assert_eq!(missed, silent, "nobody has answered");
    }

    #[test]
    fn a_declared_one_is_missed_by_its_owner_only() {
        let known = [gpu("declared", true)];
        assert_eq!(told(&Look::complete(vec![]), &known, &[]), (vec![], vec![]));
        let (missed, _) = told(&Look::complete(vec![]), &known, &["declared"]);
        assert_eq!(missed, [("declared".to_owned(), Fault::Lost)]);
    }

    #[test]
    fn slices_come_and_go_with_how_their_gpu_is_divided() {
        let known = [gpu("GPU-1", false), slice("MIG-1", "GPU-1"), slice("MIG-2", "GPU-1")];
        let divided = Look::complete(vec![slice("MIG-3", "GPU-1")]);
        assert_eq!(
            told(&divided, &known, &[]),
            (vec![], vec!["MIG-1".into(), "MIG-2".into()]),
            "it is not lost itself"
        );
        let (missed, gone) = told(&divided, &known, &["MIG-1"]);
        assert_eq!((missed, gone), (vec![("MIG-1".into(), Fault::Lost)], vec!["MIG-2".into()]));
        let whole = Look::complete(vec![gpu("GPU-1", false)]);
        assert_eq!(told(&whole, &known, &[]).1, ["MIG-1", "MIG-2"]);
        let (missed, gone) = told(&Look::complete(vec![]), &known, &[]);
        let lost = ["MIG-1", "MIG-2"].map(|id| (id.to_owned(), Fault::Lost));
        assert_eq!((missed.as_slice(), gone.len()), (lost.as_slice(), 0), "the GPU is lost with all of its slices");
        let nobody_answers = Look { all_real: false, ..divided };
        assert_eq!(told(&nobody_answers, &known, &[]).1, Vec::<String>::new(), "they may be there");
    }
}
