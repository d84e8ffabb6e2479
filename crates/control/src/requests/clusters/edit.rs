//! CLUSTER_EDIT: name and protection change in the transaction that accepts the call, so there is nothing left to do.

use tarn_model::requests::RequestType;

use crate::requests::Definition;

pub(in crate::requests) const DEFINITION: Definition = Definition {
    kind: RequestType::ClusterEdit,
    steps: &[],
    completed: "The cluster was changed.",
    takes_notes: false,
    failed: |_, _, _| Ok(()),
};
