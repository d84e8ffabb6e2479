//! CLUSTER_EDIT: the transaction that accepts the call changes name and protection, so there are no steps.

use tarn_model::requests::RequestType;

use crate::requests::Definition;

pub(in crate::requests) const DEFINITION: Definition = Definition {
    kind: RequestType::ClusterEdit,
    steps: &[],
    completed: "The cluster was changed.",
    takes_notes: false,
    failed: |_, _, _| Ok(()),
};
