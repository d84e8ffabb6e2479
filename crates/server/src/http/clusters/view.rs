//! Renders a cluster: as JSON, as rows of a table, as a text block.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};

use tarn_api::clusters::{ClusterInfo, ClusterStatus, InstanceInfo};
use tarn_control::Control;
use tarn_control::operations::clusters::ClusterView;
use tarn_control::operations::ssh::{self, SshClient};
use tarn_model::clusters::Instance;
use tarn_model::gpus::GpuRecord;
use tarn_model::ids::OrgId;
use tarn_model::lifecycle::State;

use crate::http::host::instance_gpu_info;
use crate::http::output::table::Cell::{Shown, Text};
use crate::http::output::table::{Dash, Table, append_explanations, render_block};

/// Returns a cluster as JSON. The view is moved, not copied: lists are long.
pub(super) fn cluster_info(control: &Control, view: ClusterView) -> ClusterInfo {
    let ClusterView { cluster, instances, attachment, explanation, simulated, gpus } = view;
    ClusterInfo {
        id: cluster.id.into(),
        name: cluster.name,
        status: cluster_status(&cluster.state),
        instance_type: cluster.instance_type,
        num_nodes: cluster.num_nodes,
        instances: instances.into_iter().map(|node| instance_info(control, node, &gpus)).collect(),
        storage: attachment.into_iter().map(|attachment| attachment.volume.into()).collect(),
        deletion_protection: cluster.deletion_protection,
        hourly_rate: cluster.hourly_rate.as_dollars(),
        created_at: cluster.created.to_string(),
        owner: cluster.owner.user.into(),
        org_id: cluster.owner.org.map(Into::into),
        container: cluster.container,
        image: cluster.image,
        explanation: explanation_with_note(explanation, simulated),
        simulated_gpus: simulated,
    }
}

/// Renders a row for each cluster, and below the table the explanations of clusters that do not simply run.
pub(super) fn cluster_table(views: &[ClusterView]) -> String {
    let head = ["ID", "NAME", "STATUS", "TYPE", "NODES", "STORAGE", "PER HOUR", "CREATED"];
    let mut table = Table::new(head, views.len());
    for view in views {
        let ClusterView { cluster, attachment, .. } = view;
        table.cells([
            Text(cluster.id.as_str()),
            Text(&cluster.name),
            Text(cluster.state.name()),
            Text(&type_label(view)),
            Shown(&cluster.num_nodes),
            Text(attachment.as_ref().map_or("-", |attachment| attachment.volume.as_str())),
            Shown(&cluster.hourly_rate),
            Shown(&cluster.created),
        ]);
    }
    let mut out = table.render();
    let explained = views.iter().filter_map(|view| Some((&view.cluster.name, view.explanation.as_ref()?)));
    append_explanations(&mut out, explained);
    out
}

/// Renders a row for each instance of each cluster.
pub(super) fn instance_table(views: &[ClusterView]) -> String {
    let head = ["INSTANCE", "NAME", "STATUS", "ADDRESS", "CLUSTER", "TYPE"];
    let mut table = Table::new(head, views.len());
    for view in views {
        for node in &view.instances {
            let address = Dash(node.private_ip.as_deref());
            table.row([&node.id, &HostName(node), &node.state.name(), &address, &view.cluster.name, &type_label(view)]);
        }
    }
    table.render()
}

/// Renders everything about one cluster.
pub(super) fn cluster_text(view: &ClusterView) -> String {
    let cluster = &view.cluster;
    let (price, kind) = (format!("{} per hour", cluster.hourly_rate), type_label(view));
    let (owner, attached) = (&cluster.owner, &view.attachment);
    let mut lines = vec![
        ("ID", Text(cluster.id.as_str())),
        ("Name", Text(&cluster.name)),
        ("Status", Text(cluster.state.name())),
        ("Type", Text(&kind)),
        ("Nodes", Shown(&cluster.num_nodes)),
        ("Price", Text(&price)),
        ("Storage", Text(attached.as_ref().map_or("-", |attachment| attachment.volume.as_str()))),
        ("Container", Text(cluster.container.as_deref().unwrap_or("-"))),
        ("Deletion protection", Text(if cluster.deletion_protection { "on" } else { "off" })),
        ("Owner", Text(owner.user.as_str())),
        ("Organization", Text(owner.org.as_ref().map_or("-", OrgId::as_str))),
        ("Created", Shown(&cluster.created)),
    ];
    if let Some(image) = &cluster.image {
        lines.push(("Image", Text(image)));
    }
    if let Some(explanation) = &view.explanation {
        lines.push(("Explanation", Text(explanation)));
    }
    let mut table = Table::new(["INSTANCE", "NAME", "STATUS", "ADDRESS"], view.instances.len());
    for node in &view.instances {
        table.row([&node.id, &HostName(node), &node.state.name(), &Dash(node.private_ip.as_deref())]);
    }
    let mut out = format!("{}\n\n{}", render_block(&lines), table.render());
    if let Some(node) = view.instances.iter().find(|node| node.state == State::Running) {
        let _ = write!(out, "\n\nLog in with `tp ssh {}`.", node.id);
    }
    out
}

fn instance_info(control: &Control, node: Instance, gpus: &BTreeMap<String, GpuRecord>) -> InstanceInfo {
    InstanceInfo {
        name: node.name(),
        status: cluster_status(&node.state),
        ssh_user: Some(ssh::USER.into()),
        gpus: node.gpus.iter().filter_map(|id| gpus.get(id)).map(instance_gpu_info).collect(),
        ssh_command: ssh::command_of(control, &node, SshClient::default()),
        id: node.id.into(),
        private_ip: node.private_ip,
    }
}

fn cluster_status(state: &State) -> ClusterStatus {
    match state {
        State::Pending => ClusterStatus::Pending,
        State::Provisioning => ClusterStatus::Provisioning,
        State::Configuring => ClusterStatus::Configuring,
        State::Running => ClusterStatus::Running,
        State::Restarting => ClusterStatus::Restarting,
        State::Destroying => ClusterStatus::Destroying,
        State::Destroyed => ClusterStatus::Destroyed,
        State::Failed { .. } => ClusterStatus::Failed,
    }
}

/// Adds a note to the explanation of a cluster with simulated GPUs.
fn explanation_with_note(explanation: Option<String>, simulated: bool) -> Option<String> {
    const NOTE: &str = "The GPUs are simulated: the operator declared them, and they do not exist.";
    match (explanation, simulated) {
        // The reason of a failure has no full stop; other explanations do.
        (Some(text), true) => {
            let stop = if text.ends_with(['.', '!', '?']) { "" } else { "." };
            Some(format!("{text}{stop} {NOTE}"))
        }
        (None, true) => Some(NOTE.to_owned()),
        (explanation, false) => explanation,
    }
}

/// Returns the type of a cluster, with a note when its GPUs are simulated.
fn type_label(view: &ClusterView) -> Cow<'_, str> {
    let kind = view.cluster.instance_type.as_str();
    if view.simulated { Cow::Owned(format!("{kind} (simulated)")) } else { Cow::Borrowed(kind) }
}

/// The host name of an instance.
struct HostName<'a>(&'a Instance);

impl Display for HostName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0.cluster, self.0.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The note is a separate sentence.
    #[test]
    fn simulated_note_is_separate_sentence() {
        let with_note = |text: &str| explanation_with_note(Some(text.to_owned()), true).unwrap();
        assert!(
            with_note("restart it, or destroy it").starts_with("restart it, or destroy it. The GPUs are simulated")
        );
        assert!(with_note("It waits.").starts_with("It waits. The GPUs are simulated"));
        assert_eq!(explanation_with_note(Some("it failed".to_owned()), false).as_deref(), Some("it failed"));
    }
}
