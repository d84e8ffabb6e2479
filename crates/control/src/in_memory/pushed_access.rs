//! Which access configuration this process pushed to each instance last, by hash. The reconciler pushes again what differs.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use tarn_model::ids::InstanceId;

/// What this process has told the nodes, by hash.
#[derive(Default)]
pub(crate) struct PushedAccess(Mutex<HashMap<InstanceId, Slot>>);

pub(crate) type Slot = Arc<tokio::sync::Mutex<Option<[u8; 32]>>>;

impl PushedAccess {
    /// Whether a node was told exactly this. One that is being told at this moment counts too: whoever tells it rings again.
    pub(crate) fn is_current(&self, node: &InstanceId, hash: [u8; 32]) -> bool {
        self.slot_of(node).try_lock().map_or(true, |pushed| *pushed == Some(hash))
    }

    /// Forgets nodes that are no more.
    pub(crate) fn retain(&self, known: &BTreeSet<&InstanceId>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|node, _| known.contains(node));
    }

    pub(crate) fn slot_of(&self, node: &InstanceId) -> Slot {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(node.clone()).or_default().clone()
    }
}
