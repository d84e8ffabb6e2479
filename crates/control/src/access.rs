//! How people and peers get into the nodes of a cluster, and which volume they find there by its name: the one place that
//! decides it and pushes it.
//!
//! Steps push it to nodes that they start; the reconciler of the same name pushes what changed to those that run.

use std::sync::OnceLock;

use tarn_driver::Access;
use tarn_model::clusters::{Cluster, Instance};
use tarn_model::ids::{ClusterId, InstanceId};
use tarn_model::storage::{Attachment, AttachmentState};
use tarn_store::{Tx, attachments, cluster_keys, ssh_keys, storage};

use crate::{Control, Error, KeyPair, Result, Secrets};

/// All keys of a cluster together may have so many bytes: twice that, as JSON may need, and the names of a thousand nodes fit
/// into one message to a guest.
pub(crate) const MAX_KEY_BYTES: u64 = 900_000;

/// What all nodes of a cluster are pushed alike.
pub(crate) struct DesiredAccess {
    cluster: ClusterId,
    public_keys: Vec<String>,
    nodes: Vec<(InstanceId, String, String)>,
    volumes: Vec<(String, String)>,
    /// The key between the nodes and the lines for `known_hosts`: made when first needed, and once for all nodes.
    shared: OnceLock<(KeyPair, Vec<String>)>,
}

/// The keys given for the cluster and those saved in its scope, each once, the names and addresses of its nodes, and the
/// volume that the user finds in his home directory.
pub(crate) fn desired_access(tx: &mut Tx<'_>, cluster: &Cluster, nodes: &[Instance]) -> Result<DesiredAccess> {
    let saved = ssh_keys::opening(tx, cluster.owner.scope())?;
    let held = attachments::of_cluster(tx, &cluster.id)?;
    desired_access_with(tx, cluster, nodes, &saved, held.as_ref())
}

/// The same, where the saved keys of the scope and the attachment have been read already.
pub(crate) fn desired_access_with(
    tx: &mut Tx<'_>,
    cluster: &Cluster,
    nodes: &[Instance],
    saved: &[String],
    held: Option<&Attachment>,
) -> Result<DesiredAccess> {
    let mut public_keys = cluster_keys::opening(tx, &cluster.id)?;
    public_keys.extend_from_slice(saved);
    public_keys.sort();
    public_keys.dedup();
    let nodes = nodes.iter().filter_map(|node| Some((node.id.clone(), node.name(), node.private_ip.clone()?)));
    let nodes = nodes.collect();
    let volumes = attached_volume_paths(tx, held)?;
    Ok(DesiredAccess { cluster: cluster.id.clone(), public_keys, nodes, volumes, shared: OnceLock::new() })
}

/// The name of the attached volume and where it is mounted. One that comes is there with the mount at the latest, one that
/// goes is gone with it at the latest: whoever mounts or unmounts tells the nodes as soon as that is done.
fn attached_volume_paths(tx: &mut Tx<'_>, held: Option<&Attachment>) -> Result<Vec<(String, String)>> {
    let Some(held) = held.filter(|held| held.state != AttachmentState::Detaching) else { return Ok(Vec::new()) };
    let volume = storage::get(tx, &held.volume)?;
    Ok(volume.map(|volume| (volume.name, format!("/mnt/{}", volume.id))).into_iter().collect())
}

/// Refuses more keys than a guest can be pushed: `given` and `saved` are the bytes of what would be there afterwards.
pub(crate) fn check_key_bytes(given: u64, saved: u64) -> Result<()> {
    if given.saturating_add(saved) <= MAX_KEY_BYTES {
        return Ok(());
    }
    let message = format!(
        "the SSH keys of a cluster may have {MAX_KEY_BYTES} bytes in total; this call would make it {given} bytes given at \
         creation and {saved} bytes saved; remove some keys, or use shorter ones such as ed25519"
    );
    Err(Error::conflict("too_many_ssh_keys", message))
}

impl DesiredAccess {
    /// Changes with everything that a node would be pushed; the secrets follow from the ids and never change. A start is part
    /// of it, so that a node is pushed again after each.
    pub(crate) fn hash_for(&self, node: &Instance) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        let mut add = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        add(&node.boot.to_string());
        self.public_keys.iter().for_each(|key| add(key));
        add("hosts");
        self.nodes.iter().for_each(|(_, name, address)| [name, address].into_iter().for_each(|text| add(text)));
        add("volumes");
        self.volumes.iter().for_each(|(name, path)| [name, path].into_iter().for_each(|text| add(text)));
        *hasher.finalize().as_bytes()
    }

    fn for_node(&self, secrets: &Secrets, node: &InstanceId) -> Access {
        let (peer, known_hosts) = self.shared.get_or_init(|| {
            let known = |(id, name, address): &(InstanceId, String, String)| {
                format!("{name},{address} {}", secrets.instance_host_key(id).public_key)
            };
            (secrets.cluster_peer_key(&self.cluster), self.nodes.iter().map(known).collect())
        });
        Access {
            public_keys: self.public_keys.clone(),
            hosts: self.nodes.iter().map(|(_, name, address)| (name.clone(), address.clone())).collect(),
            host_key: secrets.instance_host_key(node).private_key,
            peer_key: peer.private_key.clone(),
            peer_public_key: peer.public_key.clone(),
            known_hosts: known_hosts.clone(),
            volumes: self.volumes.clone(),
        }
    }
}

/// Tells one node who may come in, and remembers what it was pushed.
pub(crate) async fn push_access(
    control: &Control,
    desired: &DesiredAccess,
    node: &Instance,
) -> std::result::Result<(), tarn_driver::Error> {
    let pushed = control.pushed_access().slot_of(&node.id);
    // One after the other, so that what is remembered last is what arrived last.
    let mut pushed = pushed.lock().await;
    *pushed = None;
    control.driver().configure_instance(&node.id, &desired.for_node(control.secrets(), &node.id)).await?;
    *pushed = Some(desired.hash_for(node));
    Ok(())
}
