//! Renders a volume: as JSON, as a row of a table, as a text block.

use std::fmt::{self, Display};

use tarn_api::storage::{AttachmentInfo, AttachmentStatus, StorageInfo, StorageStatus};
use tarn_control::operations::storage::VolumeView;
use tarn_model::ids::OrgId;
use tarn_model::storage::{Attachment, AttachmentState, VolumeState};

use crate::http::output::table::Cell::{Shown, Text};
use crate::http::output::table::{Table, append_explanations, render_block};

/// Returns a volume as JSON.
pub(super) fn volume_info(view: VolumeView) -> StorageInfo {
    let VolumeView { volume, attachments, used_bytes, hourly_rate, explanation } = view;
    StorageInfo {
        id: volume.id.into(),
        name: volume.name,
        status: volume_status(&volume.state),
        size_gb: volume.size_gb,
        used_gb: used_bytes.map(to_gigabytes),
        hourly_rate: hourly_rate.as_dollars(),
        attached_clusters: attachments.iter().map(|attachment| attachment.cluster.to_string()).collect(),
        attachments: attachments.into_iter().map(attachment_info).collect(),
        deletion_protection: volume.deletion_protection,
        created_at: volume.created.to_string(),
        owner: volume.owner.user.into(),
        org_id: volume.owner.org.map(Into::into),
        explanation,
    }
}

/// Renders a row for each volume, and below the table the explanations of volumes that are not simply ready.
pub(super) fn volume_table(views: &[VolumeView]) -> String {
    let head = ["ID", "NAME", "STATUS", "SIZE", "USED", "ATTACHED TO", "PER HOUR", "CREATED"];
    let mut table = Table::new(head, views.len());
    for view in views {
        let volume = &view.volume;
        table.cells([
            Text(volume.id.as_str()),
            Text(&volume.name),
            Text(volume.state.name()),
            Shown(&VolumeSize(view)),
            Shown(&UsedSize(view.used_bytes)),
            Shown(&AttachedClusters(&view.attachments)),
            Shown(&view.hourly_rate),
            Shown(&volume.created),
        ]);
    }
    let mut out = table.render();
    let explained = views.iter().filter_map(|view| Some((&view.volume.name, view.explanation.as_ref()?)));
    append_explanations(&mut out, explained);
    out
}

/// Renders everything about one volume.
pub(super) fn volume_text(view: &VolumeView) -> String {
    let volume = &view.volume;
    let (price, mount) = (format!("{} per hour", view.hourly_rate), format!("/mnt/{}", volume.id));
    let (size, used, on) = (VolumeSize(view), UsedSize(view.used_bytes), AttachedClusters(&view.attachments));
    let mut lines = vec![
        ("ID", Text(volume.id.as_str())),
        ("Name", Text(&volume.name)),
        ("Status", Text(volume.state.name())),
        ("Size", Shown(&size)),
        ("Used", Shown(&used)),
        ("Price", Text(&price)),
        ("Attached to", Shown(&on)),
        ("Mounted at", Text(&mount)),
        ("Deletion protection", Text(if volume.deletion_protection { "on" } else { "off" })),
        ("Owner", Text(volume.owner.user.as_str())),
        ("Organization", Text(volume.owner.org.as_ref().map_or("-", OrgId::as_str))),
        ("Created", Shown(&volume.created)),
    ];
    if let Some(explanation) = &view.explanation {
        lines.push(("Explanation", Text(explanation)));
    }
    render_block(&lines)
}

fn attachment_info(attachment: Attachment) -> AttachmentInfo {
    let status = match attachment.state {
        AttachmentState::Attaching => AttachmentStatus::Attaching,
        AttachmentState::Attached => AttachmentStatus::Attached,
        AttachmentState::Detaching => AttachmentStatus::Detaching,
    };
    AttachmentInfo { cluster_id: attachment.cluster.into(), status }
}

fn volume_status(state: &VolumeState) -> StorageStatus {
    match state {
        VolumeState::Pending => StorageStatus::Pending,
        VolumeState::Creating => StorageStatus::Creating,
        VolumeState::Ready => StorageStatus::Ready,
        VolumeState::Resizing { .. } => StorageStatus::Resizing,
        VolumeState::Destroying => StorageStatus::Destroying,
        VolumeState::Destroyed => StorageStatus::Destroyed,
        VolumeState::Failed { .. } => StorageStatus::Failed,
    }
}

/// The size of a volume, and the one it will have.
struct VolumeSize<'a>(&'a VolumeView);

impl Display for VolumeSize<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.volume.state {
            VolumeState::Resizing { to_gb } => write!(f, "{} GB, growing to {to_gb} GB", self.0.volume.size_gb),
            _ => write!(f, "{} GB", self.0.volume.size_gb),
        }
    }
}

/// How much of a volume is used.
struct UsedSize(Option<u64>);

impl Display for UsedSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bytes) => write!(f, "{} GB", to_gigabytes(bytes)),
            None => f.write_str("-"),
        }
    }
}

/// Converts bytes to gigabytes of 10^9 bytes, to three decimal places.
fn to_gigabytes(bytes: u64) -> f64 {
    (bytes as f64 / 1e6).round() / 1e3
}

/// The clusters that a volume is on, each with its state unless it is simply attached.
struct AttachedClusters<'a>(&'a [Attachment]);

impl Display for AttachedClusters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("-");
        }
        for (at, attachment) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { ", " })?;
            f.write_str(attachment.cluster.as_str())?;
            if attachment.is_busy() {
                write!(f, " ({})", attachment.state.name())?;
            }
        }
        Ok(())
    }
}
