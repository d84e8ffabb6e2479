//! How people and peers log in to the nodes of a cluster, and under which name they find its volume. Everything that
//! decides or pushes this is here.
//!
//! Steps push to the nodes that they start; the reconciler of the same name pushes changes to running nodes.

use std::sync::OnceLock;

use tarn_driver::Access;
use tarn_model::clusters::{Cluster, Instance};
use tarn_model::ids::{ClusterId, InstanceId};
use tarn_model::storage::{Attachment, AttachmentState};
use tarn_store::{Tx, attachments, cluster_keys, ssh_keys, storage};

use crate::{Control, Error, KeyPair, Result, Secrets};

/// The maximum size of all keys of a cluster. Twice that, which JSON may need, and the names of a thousand nodes fit
/// into one message to a guest.
pub(crate) const MAX_KEY_BYTES: u64 = 900_000;

/// The access configuration that all nodes of a cluster share.
pub(crate) struct DesiredAccess {
    cluster: ClusterId,
    public_keys: Vec<String>,
    nodes: Vec<(InstanceId, String, String)>,
    volumes: Vec<(String, String)>,
    /// The key pair between the nodes and the lines for `known_hosts`; derived on first use, once for all nodes.
    shared: OnceLock<(KeyPair, Vec<String>)>,
}

/// Returns the access configuration of a cluster: the keys given at its creation and those saved in its scope, without
/// duplicates, the names and addresses of its nodes, and the volume that users find in their home directory.
pub(crate) fn desired_access(tx: &mut Tx<'_>, cluster: &Cluster, nodes: &[Instance]) -> Result<DesiredAccess> {
    let saved = ssh_keys::opening(tx, cluster.owner.scope())?;
    let held = attachments::of_cluster(tx, &cluster.id)?;
    desired_access_with(tx, cluster, nodes, &saved, held.as_ref())
}

/// Like [`desired_access`], with the saved keys of the scope and the attachment already read.
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

/// Returns the name and the mount path of the attached volume. The steps that mount or unmount push the result as soon
/// as they are done, so the name appears and disappears together with the mount.
fn attached_volume_paths(tx: &mut Tx<'_>, held: Option<&Attachment>) -> Result<Vec<(String, String)>> {
    let Some(held) = held.filter(|held| held.state != AttachmentState::Detaching) else { return Ok(Vec::new()) };
    let volume = storage::get(tx, &held.volume)?;
    Ok(volume.map(|volume| (volume.name, format!("/mnt/{}", volume.id))).into_iter().collect())
}

/// Refuses more keys than fit into one message to a guest. `given` and `saved` are the sizes in bytes after the change.
pub(crate) fn check_key_bytes(given: u64, saved: u64) -> Result<()> {
    if given.saturating_add(saved) <= MAX_KEY_BYTES {
        return Ok(());
    }
    let message = format!(
        "the SSH keys of a cluster may have {MAX_KEY_BYTES} bytes in total; this call would make it {given} bytes \
         given at creation and {saved} bytes saved; remove some keys, or use shorter ones such as ed25519"
    );
    Err(Error::conflict("too_many_ssh_keys", message))
}

impl DesiredAccess {
    /// Returns a hash of everything that is pushed to a node. Secrets are left out, because they are derived from ids
    /// and never change. The boot is included, so that every start is followed by a push.
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

/// Pushes the access configuration to one node and records its hash.
pub(crate) async fn push_access(
    control: &Control,
    desired: &DesiredAccess,
    node: &Instance,
) -> std::result::Result<(), tarn_driver::Error> {
    let pushed = control.memory.pushed_access.slot_of(&node.id);
    // One push at a time for each node, so that the recorded hash is that of the last push.
    let mut pushed = pushed.lock().await;
    *pushed = None;
    control.driver().configure_instance(&node.id, &desired.for_node(control.secrets(), &node.id)).await?;
    *pushed = Some(desired.hash_for(node));
    Ok(())
}
