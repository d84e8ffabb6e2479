//! Placement: what the host has, what is taken, and whether a claim fits now, later or never. Which of the claims that
//! wait is placed is decided by [`line`](crate::line).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One GPU of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// The driver's id of the device.
    pub id: String,
    /// The model, as in the names of types: `H100`.
    pub model: String,
    /// Whether it is declared by the operator and does not exist.
    pub simulated: bool,
}

/// The whole capacity of the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Thousandths of CPU cores, with the configured overcommit already applied.
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub gpus: Vec<Gpu>,
    /// The total size of all volumes, for a driver without a disk to measure.
    pub storage_bytes: u64,
}

/// The resources that one instance takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub gpus: u32,
    /// `None` without GPUs.
    pub gpu_model: Option<String>,
}

/// A number of equal instances that are placed together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub shape: Shape,
    pub nodes: u32,
}

/// The resources that placed instances hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldCapacity {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// The GPUs that have an owner.
    pub gpus: BTreeSet<String>,
    /// The GPUs that are not offered, with the reason.
    pub withheld: BTreeMap<String, String>,
    /// The GPUs that cannot be had while others are held, with the reason.
    pub kept_apart: BTreeMap<String, String>,
    /// Why nothing new is placed at all.
    pub closed: Option<String>,
}

impl HeldCapacity {
    /// Withholds a GPU while one of its slices has an owner, and its slices while the whole GPU has one. `slices` are
    /// pairs of a slice and its GPU.
    pub fn keep_apart(&mut self, slices: impl IntoIterator<Item = (String, String)>) {
        for (slice, whole) in slices {
            let (has_slice, has_whole) = (self.gpus.contains(&slice), self.gpus.contains(&whole));
            if has_slice {
                self.kept_apart.entry(whole).or_insert_with(|| "an instance has a slice of it".into());
            }
            if has_whole {
                let why = "an instance has the whole GPU that it is a slice of";
                self.kept_apart.entry(slice).or_insert_with(|| why.into());
            }
        }
    }

    /// Returns why a GPU is not offered.
    fn why_withheld(&self, gpu: &str) -> Option<&String> {
        self.withheld.get(gpu).or_else(|| self.kept_apart.get(gpu))
    }

    /// Returns whether a GPU is free and offered.
    pub fn leaves(&self, gpu: &Gpu) -> bool {
        !self.gpus.contains(&gpu.id) && self.why_withheld(&gpu.id).is_none()
    }

    /// Returns free GPUs for each node of a claim that fits.
    pub fn choose_gpus(&self, inventory: &Inventory, claim: &Claim) -> Vec<Vec<String>> {
        let wanted = claim.shape.gpu_model.as_deref();
        let is_free = |gpu: &&Gpu| Some(gpu.model.as_str()) == wanted && self.leaves(gpu);
        let mut devices = inventory.gpus.iter().filter(is_free).map(|gpu| gpu.id.clone());
        (0..claim.nodes).map(|_| devices.by_ref().take(claim.shape.gpus as usize).collect()).collect()
    }
}

/// Why a claim does not fit: what it lacks, and how much of it is free.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Shortage {
    Gpus { model: String, needed: u64, free: u64, withheld: Option<String> },
    Cpu { needed_milli: u64, free_milli: u64 },
    Memory { needed_bytes: u64, free_bytes: u64 },
    Closed { reason: String },
}

/// How many GPUs that are not offered are listed with their reasons; a longer list would not be read.
const MAX_LISTED: usize = 4;

impl Shortage {
    /// Adds the GPUs that would help and are not offered. A GPU that has an owner would not help, whatever its health.
    fn with_withheld_gpus(self, inventory: &Inventory, held: &HeldCapacity) -> Self {
        let Shortage::Gpus { model, needed, free, .. } = self else { return self };
        let all: Vec<&Gpu> = inventory.gpus.iter().filter(|gpu| gpu.model == model).collect();
        let away: Vec<_> = all.iter().filter(|gpu| !held.gpus.contains(&gpu.id)).collect();
        let away: Vec<_> = away.iter().filter_map(|gpu| Some((&gpu.id, held.why_withheld(&gpu.id)?))).collect();
        let mut reasons: Vec<_> = away.iter().take(MAX_LISTED).map(|(id, why)| format!("{id}: {why}")).collect();
        if away.len() > MAX_LISTED {
            reasons.push(format!("and {} more", away.len() - MAX_LISTED));
        }
        let verb = if away.len() == 1 { "is" } else { "are" };
        let count = format!("{} of {} {model} GPUs {verb} not offered", away.len(), all.len());
        let withheld = (!away.is_empty()).then(|| format!("{count}: {}", reasons.join(", ")));
        Shortage::Gpus { model, needed, free, withheld }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shortage::Gpus { model, needed, free, withheld: None } => {
                write!(
                    f,
                    "{needed} {model} {}, {free} {} free",
                    singular_or_plural(*needed, 1, ["GPU", "GPUs"]),
                    singular_or_plural(*free, 1, ["is", "are"])
                )
            }
            Shortage::Gpus { model, needed, free, withheld: Some(withheld) } => {
                let (what, verb) =
                    (singular_or_plural(*needed, 1, ["GPU", "GPUs"]), singular_or_plural(*free, 1, ["is", "are"]));
                write!(f, "{needed} {model} {what}, {free} {verb} free ({withheld})")
            }
            Shortage::Closed { reason } => write!(f, "the host to take on work again ({reason})"),
            Shortage::Cpu { needed_milli, free_milli } => {
                let (what, verb) = (
                    singular_or_plural(*needed_milli, 1000, ["CPU", "CPUs"]),
                    singular_or_plural(*free_milli, 1000, ["is", "are"]),
                );
                write!(f, "{} {what}, {} {verb} free", *needed_milli as f64 / 1e3, *free_milli as f64 / 1e3)
            }
            Shortage::Memory { needed_bytes, free_bytes } => {
                write!(f, "{:.1} GiB of memory, {:.1} GiB are free", gib(*needed_bytes), gib(*free_bytes))
            }
        }
    }
}

/// Returns the singular if the amount is exactly one unit, and the plural otherwise.
fn singular_or_plural(amount: u64, each: u64, [one, other]: [&'static str; 2]) -> &'static str {
    if amount == each { one } else { other }
}

/// Checks whether a claim fits into what is free, whichever claims wait.
pub fn fits_now(inventory: &Inventory, held: &HeldCapacity, claim: &Claim) -> Result<(), Shortage> {
    if let Some(reason) = &held.closed {
        return Err(Shortage::Closed { reason: reason.clone() });
    }
    let shortage = Free::after_held(inventory, held).check_claim(claim);
    shortage.map_err(|shortage| shortage.with_withheld_gpus(inventory, held))
}

/// Checks whether a claim could fit on an empty host.
pub fn fits_ever(inventory: &Inventory, claim: &Claim) -> Result<(), Shortage> {
    Free::after_held(inventory, &HeldCapacity::default()).check_claim(claim)
}

/// How much of each resource is free.
#[derive(Clone, Debug)]
pub(super) struct Free<'a> {
    pub(super) cpu_milli: u64,
    pub(super) memory_bytes: u64,
    pub(super) gpus: BTreeMap<&'a str, u64>,
}

impl<'a> Free<'a> {
    pub(super) fn after_held(inventory: &'a Inventory, held: &HeldCapacity) -> Self {
        let mut gpus = BTreeMap::new();
        for gpu in inventory.gpus.iter().filter(|gpu| held.leaves(gpu)) {
            *gpus.entry(gpu.model.as_str()).or_default() += 1;
        }
        Free {
            cpu_milli: inventory.cpu_milli.saturating_sub(held.cpu_milli),
            memory_bytes: inventory.memory_bytes.saturating_sub(held.memory_bytes),
            gpus,
        }
    }

    /// Returns how many instances of a shape fit.
    pub(super) fn count_of(&self, shape: &Shape) -> u64 {
        let gpus = shape.gpu_model.as_deref().map(|model| self.gpus.get(model).copied().unwrap_or(0));
        let of = |free: u64, each: u64| free.checked_div(each).unwrap_or(u64::MAX);
        let by_gpus = gpus.map_or(u64::MAX, |free| of(free, shape.gpus.into()));
        by_gpus.min(of(self.cpu_milli, shape.cpu_milli)).min(of(self.memory_bytes, shape.memory_bytes))
    }

    /// Returns the lesser amount of each resource.
    pub(super) fn at_most(mut self, other: &Free<'a>) -> Self {
        self.cpu_milli = self.cpu_milli.min(other.cpu_milli);
        self.memory_bytes = self.memory_bytes.min(other.memory_bytes);
        for (model, free) in &mut self.gpus {
            *free = (*free).min(other.gpus.get(model).copied().unwrap_or(0));
        }
        self
    }

    /// Takes away what a claim needs, as far as it is there.
    pub(super) fn set_aside(&mut self, claim: &Claim) {
        let nodes = u64::from(claim.nodes);
        self.cpu_milli = self.cpu_milli.saturating_sub(claim.shape.cpu_milli.saturating_mul(nodes));
        self.memory_bytes = self.memory_bytes.saturating_sub(claim.shape.memory_bytes.saturating_mul(nodes));
        if let Some(free) = claim.shape.gpu_model.as_deref().and_then(|model| self.gpus.get_mut(model)) {
            *free = free.saturating_sub(u64::from(claim.shape.gpus).saturating_mul(nodes));
        }
    }

    pub(super) fn check_claim(&self, claim: &Claim) -> Result<(), Shortage> {
        let nodes = u64::from(claim.nodes);
        if let Some(model) = &claim.shape.gpu_model {
            let needed = u64::from(claim.shape.gpus).saturating_mul(nodes);
            let free = self.gpus.get(model.as_str()).copied().unwrap_or(0);
            if needed > free {
                return Err(Shortage::Gpus { model: model.clone(), needed, free, withheld: None });
            }
        }
        let needed_milli = claim.shape.cpu_milli.saturating_mul(nodes);
        if needed_milli > self.cpu_milli {
            return Err(Shortage::Cpu { needed_milli, free_milli: self.cpu_milli });
        }
        let needed_bytes = claim.shape.memory_bytes.saturating_mul(nodes);
        if needed_bytes > self.memory_bytes {
            return Err(Shortage::Memory { needed_bytes, free_bytes: self.memory_bytes });
        }
        Ok(())
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Inventory {
        let gpu = |n: u32| Gpu { id: format!("gpu-{n}"), model: "H100".into(), simulated: true };
        Inventory { cpu_milli: 8_000, memory_bytes: 8 << 30, gpus: (0..8).map(gpu).collect(), storage_bytes: 0 }
    }

    fn gpus(count: u32) -> Claim {
        let shape =
            Shape { cpu_milli: 1000 * u64::from(count), memory_bytes: 1, gpus: count, gpu_model: Some("H100".into()) };
        Claim { shape, nodes: 1 }
    }

    fn cpus(count: u64) -> Claim {
        Claim { shape: Shape { cpu_milli: 1000 * count, memory_bytes: 1, gpus: 0, gpu_model: None }, nodes: 1 }
    }

    fn place(inventory: &Inventory, held: &HeldCapacity, claim: &Claim) -> Result<Vec<Vec<String>>, Shortage> {
        fits_now(inventory, held, claim).map(|()| held.choose_gpus(inventory, claim))
    }

    #[test]
    fn gpu_has_one_owner() {
        let mut held =
            HeldCapacity { gpus: BTreeSet::from(["gpu-0".into(), "gpu-2".into()]), ..HeldCapacity::default() };
        let placed = place(&host(), &held, &Claim { nodes: 2, ..gpus(2) }).unwrap();
        assert_eq!(placed, [["gpu-1", "gpu-3"], ["gpu-4", "gpu-5"]]);
        held.gpus.extend(placed.into_iter().flatten());
        let shortage = place(&host(), &held, &gpus(4)).unwrap_err();
        assert_eq!(shortage.to_string(), "4 H100 GPUs, 2 are free");
    }

    #[test]
    fn shortage_uses_singular_for_one() {
        let cpu = |needed_milli, free_milli| Shortage::Cpu { needed_milli, free_milli }.to_string();
        assert_eq!([cpu(1000, 0), cpu(2000, 1000)], ["1 CPU, 0 are free", "2 CPUs, 1 is free"]);
        assert_eq!(cpu(1500, 500), "1.5 CPUs, 0.5 are free");
        let gpus = Shortage::Gpus { model: "H100".into(), needed: 1, free: 0, withheld: None };
        assert_eq!(gpus.to_string(), "1 H100 GPU, 0 are free");
    }

    #[test]
    fn withheld_gpu_is_not_placed() {
        let withheld = [("gpu-0", "Xid 79"), ("gpu-1", "drained"), ("gpu-7", "too hot")];
        let withheld = withheld.map(|(id, why)| (id.to_owned(), why.to_owned()));
        let held = HeldCapacity {
            gpus: BTreeSet::from(["gpu-7".into()]),
            withheld: withheld.into(),
            ..HeldCapacity::default()
        };
        assert_eq!(place(&host(), &held, &gpus(2)).unwrap(), [["gpu-2", "gpu-3"]]);
        let shortage = place(&host(), &held, &gpus(8)).unwrap_err().to_string();
        let told = "8 H100 GPUs, 5 are free (2 of 8 H100 GPUs are not offered: gpu-0: Xid 79, gpu-1: drained)";
        assert_eq!(shortage, told, "a GPU with an owner would not help");
        assert!(fits_ever(&host(), &gpus(8)).is_ok(), "the GPUs may return");
        let host_of_eight = host();
        let free = Free::after_held(&host_of_eight, &held);
        assert_eq!((free.count_of(&gpus(2).shape), free.count_of(&cpus(3).shape)), (2, 2));
        let closed = HeldCapacity { closed: Some("drained: a new kernel".into()), ..HeldCapacity::default() };
        let shortage = place(&host(), &closed, &cpus(1)).unwrap_err();
        assert_eq!(shortage.to_string(), "the host to take on work again (drained: a new kernel)");
    }

    #[test]
    fn gpu_and_its_slices_have_one_owner() {
        let slices = || [("gpu-1", "gpu-0"), ("gpu-2", "gpu-0"), ("gpu-4", "gpu-3")].map(|(a, b)| (a.into(), b.into()));
        let mut held =
            HeldCapacity { gpus: BTreeSet::from(["gpu-1".into(), "gpu-3".into()]), ..HeldCapacity::default() };
        held.keep_apart(slices());
        let free: Vec<_> = host().gpus.into_iter().filter(|gpu| held.leaves(gpu)).map(|gpu| gpu.id).collect();
        assert_eq!(free, ["gpu-2", "gpu-5", "gpu-6", "gpu-7"]);
        let shortage = place(&host(), &held, &gpus(8)).unwrap_err().to_string();
        assert!(
            shortage.contains("gpu-0: an instance has a slice of it, gpu-4: an instance has the whole GPU"),
            "{shortage}"
        );
    }

    #[test]
    fn fits_ever_refuses_impossible_claims() {
        assert!(fits_ever(&host(), &gpus(8)).is_ok());
        assert!(fits_ever(&host(), &Claim { nodes: u32::MAX, ..gpus(8) }).is_err());
        assert!(fits_ever(&host(), &cpus(9)).is_err());
    }

    proptest::proptest! {
        #[test]
        fn placement_never_exceeds_inventory(claims: Vec<(u8, bool)>, away: [bool; 8]) {
            let away = (0..8).filter(|n| away[*n]).map(|n| (format!("gpu-{n}"), "why".to_owned()));
            let (inventory, mut held) = (host(), HeldCapacity { withheld: away.collect(), ..HeldCapacity::default() });
            for (size, wants_gpus) in claims {
                let claim = if wants_gpus { gpus(u32::from(size % 9)) } else { cpus(u64::from(size % 9)) };
                if let Ok(placed) = place(&inventory, &held, &claim) {
                    held.cpu_milli += claim.shape.cpu_milli;
                    held.memory_bytes += claim.shape.memory_bytes;
                    for gpu in placed.into_iter().flatten() {
                        proptest::prop_assert!(!held.withheld.contains_key(&gpu));
                        proptest::prop_assert!(held.gpus.insert(gpu));
                    }
                }
            }
            proptest::prop_assert!(held.cpu_milli <= inventory.cpu_milli && held.gpus.len() <= 8);
        }
    }
}
