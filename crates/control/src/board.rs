//! What is known of the machine at this moment: what it has, what can be asked for, and what its GPUs measured. It is no part of
//! the database: whoever starts looks anew. What follows from it for GPUs, whether they are offered, is.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use tarn_model::capacity::Inventory;
use tarn_model::catalogue::{Catalogue, Prices};
use tarn_model::gpus::{Figures, Seen};

/// What this process has seen.
pub(crate) struct Board(RwLock<Present>);

#[derive(Clone)]
struct Present {
    inventory: Arc<Inventory>,
    catalogue: Arc<Catalogue>,
    figures: Arc<BTreeMap<String, Figures>>,
}

impl Board {
    pub(crate) fn new(inventory: Inventory, catalogue: Catalogue) -> Self {
        let (inventory, catalogue) = (Arc::new(inventory), Arc::new(catalogue));
        Board(RwLock::new(Present { inventory, catalogue, figures: Arc::default() }))
    }

    pub(crate) fn inventory(&self) -> Arc<Inventory> {
        self.present().inventory
    }

    pub(crate) fn catalogue(&self) -> Arc<Catalogue> {
        self.present().catalogue
    }

    pub(crate) fn figures(&self) -> Arc<BTreeMap<String, Figures>> {
        self.present().figures
    }

    /// Remembers what was seen; says whether there are other GPUs than before.
    pub(crate) fn remember(&self, seen: &[Seen], prices: &Prices) -> bool {
        let mut present = self.0.write().unwrap_or_else(PoisonError::into_inner);
        present.figures = Arc::new(seen.iter().map(|seen| (seen.gpu.id.clone(), seen.figures.clone())).collect());
        let gpus: Vec<_> = seen.iter().map(|seen| seen.gpu.clone()).collect();
        if gpus == present.inventory.gpus {
            return false;
        }
        let inventory = Inventory { gpus, ..Inventory::clone(&present.inventory) };
        present.catalogue = Arc::new(present.catalogue.with_gpus_of(&inventory, prices));
        present.inventory = Arc::new(inventory);
        true
    }

    fn present(&self) -> Present {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
