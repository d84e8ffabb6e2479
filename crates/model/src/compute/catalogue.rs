//! Instance types: their names, shapes and prices.

use std::collections::BTreeMap;

use crate::Money;
use crate::capacity::{Inventory, Shape};

/// One type of instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceType {
    /// `8xH100`, `4xCPU`, or one of the operator's own.
    pub name: String,
    /// What an instance of this type takes.
    pub shape: Shape,
    /// What an instance of this type costs per hour.
    pub hourly: Money,
    /// Whether its GPUs are declared and do not exist.
    pub simulated: bool,
}

/// Every type that can be requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    types: Vec<InstanceType>,
}

impl Catalogue {
    /// Derives the types of a host: `1x`, `2x`, `4x`, … of its CPUs, and `1x` to `8x` of each GPU model. Each type gets
    /// its share of the host: by CPUs without GPUs, by GPUs with them.
    pub fn derived(inventory: &Inventory, prices: &Prices) -> Self {
        let mut types = Vec::new();
        let cores = inventory.cpu_milli / 1000;
        for count in powers_of_two(cores) {
            let shape = Shape {
                cpu_milli: count * 1000,
                memory_bytes: share(inventory.memory_bytes, count * 1000, inventory.cpu_milli),
                ..Shape::default()
            };
            types.push(InstanceType {
                name: format!("{count}xCPU"),
                shape,
                hourly: prices.cpu.times(count),
                simulated: false,
            });
        }
        let mut models: BTreeMap<&str, (u64, bool)> = BTreeMap::new();
        for gpu in &inventory.gpus {
            let (count, simulated) = models.entry(&gpu.model).or_default();
            *count += 1;
            *simulated |= gpu.simulated;
        }
        for (model, (installed, simulated)) in models {
            for count in powers_of_two(installed.min(8)) {
                let shape = Shape {
                    cpu_milli: share(inventory.cpu_milli, count, inventory.gpus.len() as u64),
                    memory_bytes: share(inventory.memory_bytes, count, inventory.gpus.len() as u64),
                    gpus: count as u32,
                    gpu_model: Some(model.to_owned()),
                };
                let hourly = prices.gpu(model).times(count);
                types.push(InstanceType { name: format!("{count}x{model}"), shape, hourly, simulated });
            }
        }
        Catalogue { types }
    }

    /// Adds the types of GPUs that appeared later, such as slices of other GPUs. Existing types stay, so that a claim
    /// of a type whose GPUs are gone gets a clear refusal.
    pub fn with_gpus_of(&self, inventory: &Inventory, prices: &Prices) -> Self {
        let derived = Catalogue::derived(inventory, prices).types.into_iter();
        let new = derived.filter(|kind| kind.shape.gpus > 0 && self.find(&kind.name).is_none());
        Catalogue { types: self.types.iter().cloned().chain(new).collect() }
    }

    /// Adds a type that the operator defined, or replaces the type of that name.
    pub fn define(&mut self, new: InstanceType) {
        self.types.retain(|old| old.name != new.name);
        self.types.push(new);
    }

    /// The type of this name.
    pub fn find(&self, name: &str) -> Option<&InstanceType> {
        self.types.iter().find(|kind| kind.name == name)
    }

    /// Every type, CPU types first.
    pub fn types(&self) -> &[InstanceType] {
        &self.types
    }
}

/// The prices per hour, and of storage per gigabyte and month.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prices {
    /// One CPU.
    pub cpu: Money,
    /// One GPU of each model.
    pub gpus: BTreeMap<String, Money>,
    /// One gigabyte of volume for a month of 730 hours.
    pub storage_gb_month: Money,
}

impl Prices {
    /// One GPU of `model`; a model without a price costs nothing.
    pub fn gpu(&self, model: &str) -> Money {
        self.gpus.get(model).copied().unwrap_or(Money::ZERO)
    }
}

/// The prices of sections 5 and 9 of the contract.
impl Default for Prices {
    fn default() -> Self {
        let gpus =
            [("B300", 5_490_000), ("B200", 4_990_000), ("H200", 2_990_000), ("H100", 1_990_000), ("L40S", 1_490_000)];
        Prices {
            cpu: Money::from_micros(15_000),
            gpus: gpus.into_iter().map(|(model, micros)| (model.to_owned(), Money::from_micros(micros))).collect(),
            storage_gb_month: Money::from_micros(100_000),
        }
    }
}

fn powers_of_two(limit: u64) -> impl Iterator<Item = u64> {
    (0..63).map(|bit| 1 << bit).take_while(move |count| *count <= limit)
}

fn share(whole: u64, part: u64, of: u64) -> u64 {
    u64::try_from(u128::from(whole) * u128::from(part) / u128::from(of.max(1))).unwrap_or(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::Gpu;

    #[test]
    fn types_are_derived_from_inventory() {
        let gpu = |n: u32| Gpu { id: n.to_string(), model: "H100".into(), simulated: true };
        let inventory =
            Inventory { cpu_milli: 12_000, memory_bytes: 1200, gpus: (0..3).map(gpu).collect(), storage_bytes: 0 };
        let catalogue = Catalogue::derived(&inventory, &Prices::default());
        let names: Vec<_> = catalogue.types().iter().map(|kind| kind.name.as_str()).collect();
        assert_eq!(names, ["1xCPU", "2xCPU", "4xCPU", "8xCPU", "1xH100", "2xH100"]);
        let two = catalogue.find("2xH100").unwrap();
        assert_eq!(
            (two.shape.cpu_milli, two.shape.memory_bytes, two.hourly),
            (8_000, 800, Money::from_micros(3_980_000))
        );
        assert!(two.simulated);
    }

    #[test]
    fn new_gpus_add_types() {
        let gpu = |model: &str, n: u32| Gpu { id: format!("{model}-{n}"), model: model.into(), simulated: true };
        let before = Inventory { cpu_milli: 1000, memory_bytes: 100, gpus: vec![gpu("H100", 0)], storage_bytes: 0 };
        let sliced = (0..3).map(|n| gpu("H100MIG1G10GB", n)).collect();
        let catalogue = Catalogue::derived(&before, &Prices::default());
        let after = catalogue.with_gpus_of(&Inventory { gpus: sliced, ..before }, &Prices::default());
        let names: Vec<_> = after.types().iter().map(|kind| kind.name.as_str()).collect();
        assert_eq!(names, ["1xCPU", "1xH100", "1xH100MIG1G10GB", "2xH100MIG1G10GB"]);
    }
}
