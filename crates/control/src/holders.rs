//! The processes that use a volume on the nodes of a cluster: who they are, and how a person is told.

use futures::future::join_all;
use tarn_driver::{Error, Holder};
use tarn_model::clusters::Instance;
use tarn_model::ids::VolumeId;

use crate::Control;

/// So many processes are told by name; of a thousand nobody would read the list.
const NAMED: usize = 10;

/// A process, and the host name of the node it is on.
pub(crate) type Found = (String, Holder);

/// Everybody who uses the volume on these nodes.
pub(crate) async fn find(control: &Control, volume: &VolumeId, nodes: &[Instance]) -> Result<Vec<Found>, Error> {
    let looks = nodes.iter().map(|node| async move {
        let holders = control.driver().holders(volume, &node.id).await?;
        Ok(holders.into_iter().map(|holder| (node.name(), holder)).collect::<Vec<_>>())
    });
    let found: Result<Vec<_>, Error> = join_all(looks).await.into_iter().collect();
    Ok(found?.into_iter().flatten().collect())
}

/// The processes as a list for a person.
pub(crate) fn words(found: &[Found]) -> String {
    let mut words: Vec<String> = found.iter().take(NAMED).map(|(node, holder)| format!("{holder} on {node}")).collect();
    if found.len() > NAMED {
        words.push(format!("and {} more", found.len() - NAMED));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_cut() {
        let found: Vec<Found> =
            (1..=12).map(|pid| ("c-1-0".to_owned(), Holder { pid, program: "python3".into() })).collect();
        assert_eq!(words(&found[..1]), "python3 (process 1) on c-1-0");
        assert!(words(&found).ends_with("python3 (process 10) on c-1-0, and 2 more"), "{}", words(&found));
    }
}
