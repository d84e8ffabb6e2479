//! The processes that use a volume on the nodes of a cluster: who they are, and how a person is told.

use futures::future::join_all;
use tarn_driver::{Error, Holder, listed};
use tarn_model::clusters::Instance;
use tarn_model::ids::VolumeId;

use crate::Control;

/// A process, and the host name of the node it is on.
pub(crate) type VolumeUser = (String, Holder);

/// Everybody who uses the volume on these nodes.
pub(crate) async fn find_volume_users(
    control: &Control,
    volume: &VolumeId,
    nodes: &[Instance],
) -> Result<Vec<VolumeUser>, Error> {
    let looks = nodes.iter().map(|node| async move {
        let holders = control.driver().holders(volume, &node.id).await?;
        Ok(holders.into_iter().map(|holder| (node.name(), holder)).collect::<Vec<_>>())
    });
    let found: Result<Vec<_>, Error> = join_all(looks).await.into_iter().collect();
    Ok(found?.into_iter().flatten().collect())
}

/// The processes as a list for a person.
pub(crate) fn describe_volume_users(found: &[VolumeUser]) -> String {
    let found: Vec<String> = found.iter().map(|(node, holder)| format!("{holder} on {node}")).collect();
    listed(&found)
}
