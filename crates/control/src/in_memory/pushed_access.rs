//! Which access configuration this process last pushed to each instance, by hash. The reconciler pushes again when it
//! differs.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tarn_model::ids::InstanceId;

/// The hash of the last push to each instance.
#[derive(Default)]
pub(crate) struct PushedAccess(Mutex<HashMap<InstanceId, Slot>>);

pub(crate) type Slot = Arc<tokio::sync::Mutex<Option<[u8; 32]>>>;

impl PushedAccess {
    /// Returns whether exactly this was pushed to a node. A push in progress counts, because its caller notifies the
    /// reconciler again.
    pub(crate) fn is_current(&self, node: &InstanceId, hash: [u8; 32]) -> bool {
        self.slot_of(node).try_lock().map_or(true, |pushed| *pushed == Some(hash))
    }

    /// Returns the nodes that have an entry.
    pub(crate) fn recorded(&self) -> BTreeSet<InstanceId> {
        self.0.lock().keys().cloned().collect()
    }

    /// Drops the entries of nodes that no longer exist.
    pub(crate) fn remove(&self, gone: &BTreeSet<InstanceId>) {
        self.0.lock().retain(|node, _| !gone.contains(node));
    }

    pub(crate) fn slot_of(&self, node: &InstanceId) -> Slot {
        self.0.lock().entry(node.clone()).or_default().clone()
    }
}
