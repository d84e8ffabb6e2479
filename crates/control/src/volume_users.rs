//! The processes that use a volume on the nodes of a cluster, and how they are described to people.

use futures::future::join_all;
use tarn_driver::{Error, VolumeUser, format_short_list};
use tarn_model::clusters::Instance;
use tarn_model::ids::VolumeId;

use crate::Control;

/// A process that uses a volume, and the host name of its node.
pub(crate) type NodeVolumeUser = (String, VolumeUser);

/// Finds every process that uses the volume on these nodes.
pub(crate) async fn find_volume_users(
    control: &Control,
    volume: &VolumeId,
    nodes: &[Instance],
) -> Result<Vec<NodeVolumeUser>, Error> {
    let searches = nodes.iter().map(|node| async move {
        let volume_users = control.driver().volume_users(volume, &node.id).await?;
        Ok(volume_users.into_iter().map(|holder| (node.name(), holder)).collect::<Vec<_>>())
    });
    let found: Result<Vec<_>, Error> = join_all(searches).await.into_iter().collect();
    Ok(found?.into_iter().flatten().collect())
}

/// Formats the processes as a list for people.
pub(crate) fn describe_volume_users(found: &[NodeVolumeUser]) -> String {
    let found: Vec<String> = found.iter().map(|(node, holder)| format!("{holder} on {node}")).collect();
    format_short_list(&found)
}
