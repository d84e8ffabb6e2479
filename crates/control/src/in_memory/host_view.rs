//! What is known about the host at this moment: its inventory, the instance types it can provide, and the measurements
//! of its GPUs. This is not stored: a process that starts observes the host again. Whether GPUs are offered, which
//! follows from it, is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::RwLock;
use tarn_model::capacity::{Gpu, Inventory};
use tarn_model::catalogue::{Catalogue, Prices};
use tarn_model::gpus::{Fault, Figures, ObservedGpu};

/// What this process has observed.
pub(crate) struct HostView(RwLock<HostFacts>);

#[derive(Clone)]
struct HostFacts {
    inventory: Arc<Inventory>,
    catalogue: Arc<Catalogue>,
    figures: Arc<BTreeMap<String, Figures>>,
    /// The GPUs of the inventory that the last look found to be lost.
    lost: Arc<BTreeSet<String>>,
}

impl HostFacts {
    /// Replaces the GPUs; returns whether they differ from before.
    fn replace_gpus(&mut self, gpus: Vec<Gpu>, prices: &Prices) -> bool {
        if gpus == self.inventory.gpus {
            return false;
        }
        let inventory = Inventory { gpus, ..Inventory::clone(&self.inventory) };
        self.catalogue = Arc::new(self.catalogue.with_gpus_of(&inventory, prices));
        self.inventory = Arc::new(inventory);
        true
    }
}

impl HostView {
    pub(crate) fn new(inventory: Inventory, catalogue: Catalogue) -> Self {
        let (inventory, catalogue) = (Arc::new(inventory), Arc::new(catalogue));
        HostView(RwLock::new(HostFacts { inventory, catalogue, figures: Arc::default(), lost: Arc::default() }))
    }

    pub(crate) fn inventory(&self) -> Arc<Inventory> {
        self.snapshot().inventory
    }

    /// The inventory without lost GPUs, which must not be assigned even when the database no longer records the loss.
    pub(crate) fn present_inventory(&self) -> Arc<Inventory> {
        let HostFacts { inventory, lost, .. } = self.snapshot();
        if lost.is_empty() {
            return inventory;
        }
        let mut inventory = Arc::unwrap_or_clone(inventory);
        inventory.gpus.retain(|gpu| !lost.contains(&gpu.id));
        Arc::new(inventory)
    }

    pub(crate) fn catalogue(&self) -> Arc<Catalogue> {
        self.snapshot().catalogue
    }

    pub(crate) fn figures(&self) -> Arc<BTreeMap<String, Figures>> {
        self.snapshot().figures
    }

    /// Returns whether the last look found that a GPU of the inventory is lost. A GPU that did not respond may still be
    /// present.
    pub(crate) fn is_gpu_lost(&self, gpu: &str) -> bool {
        self.snapshot().lost.contains(gpu)
    }

    /// Records which GPUs were seen and missed; returns whether the set of GPUs has changed.
    pub(crate) fn record_look(&self, seen: &[ObservedGpu], missed: &[ObservedGpu], prices: &Prices) -> bool {
        let mut facts = self.0.write();
        let lost = missed.iter().filter(|missed| missed.faults.contains(&Fault::Lost));
        facts.lost = Arc::new(lost.map(|lost| lost.gpu.id.clone()).collect());
        facts.figures = Arc::new(seen.iter().map(|seen| (seen.gpu.id.clone(), seen.figures.clone())).collect());
        // A missed GPU still counts as installed: a claim for it waits, and the explanation says why.
        let gpus: Vec<_> = seen.iter().chain(missed).map(|seen| seen.gpu.clone()).collect();
        facts.replace_gpus(gpus, prices)
    }

    /// Removes a lost GPU from the inventory without waiting for the next look.
    pub(crate) fn remove_lost_gpu(&self, gpu: &str, prices: &Prices) {
        let mut facts = self.0.write();
        if facts.lost.contains(gpu) {
            Arc::make_mut(&mut facts.lost).remove(gpu);
            let left = facts.inventory.gpus.iter().filter(|left| left.id != gpu).cloned().collect();
            facts.replace_gpus(left, prices);
        }
    }

    fn snapshot(&self) -> HostFacts {
        self.0.read().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_gpu_stays_installed_and_is_not_assigned() {
        let gpu = |id: &str| Gpu { id: id.to_owned(), model: "H100".to_owned(), simulated: true };
        let (prices, inventory) = (Prices::default(), Inventory::default());
        let host_view = HostView::new(inventory.clone(), Catalogue::derived(&inventory, &prices));
        let lost = ObservedGpu { faults: vec![Fault::Lost], ..ObservedGpu::plain(gpu("gpu-1")) };
        host_view.record_look(&[ObservedGpu::plain(gpu("gpu-0"))], &[lost], &prices);
        assert_eq!(host_view.inventory().gpus, [gpu("gpu-0"), gpu("gpu-1")]);
        assert_eq!(host_view.present_inventory().gpus, [gpu("gpu-0")]);
        host_view.remove_lost_gpu("gpu-1", &prices);
        assert_eq!(host_view.inventory(), host_view.present_inventory());
    }
}
