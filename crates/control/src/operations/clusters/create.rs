//! Creating a cluster. Everything is decided and written in one transaction, and the claim enters the capacity queue.

use tarn_model::capacity::Claim;
use tarn_model::catalogue::InstanceType;
use tarn_model::clusters::{Cluster, Instance, MAX_JOBS_PARALLEL};
use tarn_model::events::{ClusterEvent, Event};
use tarn_model::ids::{ClusterId, InstanceId};
use tarn_model::images;
use tarn_model::lifecycle::State;
use tarn_model::limits::Amounts;
use tarn_model::names;
use tarn_model::requests::RequestKind;
use tarn_model::ssh_keys::{self as rules, ParsedKey};
use tarn_store::{Tx, cluster_keys, clusters, instances, ssh_keys};

use super::fitting_type;
use crate::operations::ssh_keys::save_key;
use crate::operations::{Accepted, free_name, limits, request_owner};
use crate::requests::start_queued;
use crate::{Caller, Control, Error, Result, access};

/// The cluster to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewCluster {
    /// The name of the instance type of its nodes.
    pub instance_type: String,
    /// Keys for the nodes, in addition to the saved ones.
    pub public_keys: Vec<String>,
    /// The number of nodes; one when absent.
    pub num_nodes: Option<u32>,
    /// Generated when absent.
    pub name: Option<String>,
    /// A container image.
    pub container: Option<String>,
    /// Refuses to destroy the cluster.
    pub deletion_protection: bool,
    /// How many jobs may run on it at the same time; one when absent.
    pub jobs_parallel: Option<u32>,
    /// Saves new keys to the caller's profile.
    pub save_keys: bool,
}

/// Accepts a new cluster.
pub async fn create(control: &Control, caller: &Caller, new: NewCluster) -> Result<Accepted> {
    let (kind, nodes) = fitting_type(control, &new.instance_type, new.num_nodes)?;
    if let Some(name) = &new.name {
        names::check_new(name)?;
    }
    check_container(control, new.container.as_deref())?;
    if !(1..=MAX_JOBS_PARALLEL).contains(&new.jobs_parallel.unwrap_or(1)) {
        let message = format!("a cluster can run 1 to {MAX_JOBS_PARALLEL} jobs at the same time");
        return Err(Error::invalid("invalid_jobs_parallel", message));
    }
    let keys = parse_keys(&new.public_keys)?;
    let saves = new.save_keys && !keys.is_empty();
    let (me, kind, limit) = (caller.clone(), kind, control.settings().capacity_deadline);
    let defaults = control.settings().limits;
    let write = control.write(caller, move |tx| {
        limits::check_claim(tx, &defaults, me.user.owner().scope(), &amounts_needed(&kind, nodes))?;
        let cluster = insert_cluster(tx, &me, &new, &kind, nodes)?;
        let nodes = insert_nodes(tx, &cluster, &kind)?;
        if !keys.is_empty() {
            let given: usize = keys.iter().map(|key| key.public_key.len() + 1).sum();
            access::check_key_bytes(given as u64, ssh_keys::total_bytes(tx, cluster.owner.scope())?)?;
            cluster_keys::save(tx, &cluster.id, &keys)?;
        }
        if saves {
            for key in &keys {
                save_key(tx, &me, key, None)?;
            }
        }
        let (name, instance_type) = (cluster.name.clone(), kind.name.clone());
        let created = ClusterEvent::Created { name, instance_type, nodes: cluster.num_nodes };
        tx.record(cluster.owner.scope(), Event::Cluster(cluster.id.clone(), created))?;
        let (owner, work) = (request_owner(&me, &cluster.owner), RequestKind::ClaimCluster(cluster.id.clone()));
        let claim = Claim { shape: kind.shape.clone(), nodes: cluster.num_nodes };
        let request = start_queued(tx, owner, work, &claim, limit)?;
        let note = if kind.simulated { " Its GPUs are simulated." } else { "" };
        let message =
            format!("Cluster {} ({}) is being created, request {}.{note}", cluster.name, cluster.id, request.id);
        Ok(Accepted { cluster: cluster.id, volume: (), instances: nodes, request: request.id, message })
    });
    let accepted = write.await;
    if saves {
        // Saved keys are added to running clusters, too.
        control.memory.access_changed.notify_one();
    }
    accepted
}

/// Returns what all nodes count against the limits, which they do even while they wait for capacity.
fn amounts_needed(kind: &InstanceType, nodes: u32) -> Amounts {
    let nodes = u64::from(nodes);
    Amounts {
        instances: nodes,
        cpu_milli: kind.shape.cpu_milli.saturating_mul(nodes),
        gpus: u64::from(kind.shape.gpus).saturating_mul(nodes),
        ..Amounts::default()
    }
}

fn insert_cluster(
    tx: &mut Tx<'_>,
    caller: &Caller,
    new: &NewCluster,
    kind: &InstanceType,
    nodes: u32,
) -> Result<Cluster> {
    let (now, owner) = (tx.now(), caller.user.owner());
    let name = match &new.name {
        Some(name) => match clusters::find(tx, owner.scope(), name)? {
            None => name.clone(),
            Some(other) => {
                let message = format!("the name {name} is taken by cluster {}; choose another", other.id);
                return Err(Error::conflict("name_taken", message));
            }
        },
        None => free_name(tx, |tx, name| Ok(clusters::is_named(tx, owner.scope(), name)?))?,
    };
    let cluster = Cluster {
        id: ClusterId::fresh(tx.ids()),
        name,
        owner,
        instance_type: kind.name.clone(),
        num_nodes: nodes,
        hourly_rate: kind.hourly.times(nodes.into()),
        container: new.container.clone(),
        image: None,
        deletion_protection: new.deletion_protection,
        jobs_parallel: new.jobs_parallel.unwrap_or(1),
        state: State::Pending,
        since: now,
        created: now,
        version: 0,
    };
    clusters::insert(tx, &cluster)?;
    Ok(cluster)
}

fn insert_nodes(tx: &mut Tx<'_>, cluster: &Cluster, kind: &InstanceType) -> Result<Vec<InstanceId>> {
    let node = |node| Instance {
        id: InstanceId::fresh(tx.ids()),
        cluster: cluster.id.clone(),
        node,
        state: State::Pending,
        shape: kind.shape.clone(),
        gpus: Vec::new(),
        holds_capacity: false,
        boot: 1,
        private_ip: None,
    };
    let nodes: Vec<Instance> = (0..cluster.num_nodes).map(node).collect();
    instances::insert_all(tx, &nodes)?;
    Ok(nodes.into_iter().map(|node| node.id).collect())
}

fn parse_keys(texts: &[String]) -> Result<Vec<ParsedKey>> {
    let mut keys: Vec<ParsedKey> = Vec::with_capacity(texts.len());
    for (at, text) in texts.iter().enumerate() {
        let key = rules::parse(text)
            .map_err(|error| Error::invalid("invalid_ssh_key", format!("public_keys[{at}] is {error}")))?;
        if !keys.iter().any(|other| other.fingerprint == key.fingerprint) {
            keys.push(key);
        }
    }
    Ok(keys)
}

/// Refuses everything that can be wrong with an image reference without contacting a registry.
fn check_container(control: &Control, container: Option<&str>) -> Result<()> {
    let Some(image) = container else { return Ok(()) };
    if image == images::HOST {
        return Ok(());
    }
    let reference = images::check(image).map_err(|why| {
        let message =
            format!("container is not an image reference such as 'debian:12' or 'ghcr.io/org/app:1.0': {why}");
        Error::invalid("invalid_container", message)
    })?;
    if !control.driver().capabilities().containers {
        let message = format!("the {} driver cannot run container images; omit container", control.driver().name());
        return Err(Error::invalid("containers_unsupported", message));
    }
    let allowed = control.settings().allowed_registries.as_deref();
    if images::is_allowed(&reference, allowed) {
        Ok(())
    } else {
        let places = allowed.unwrap_or_default().join(", ");
        let message = if places.is_empty() {
            "container images are disabled on this engine; omit container".to_owned()
        } else {
            format!(
                "this engine allows container images only from {places}, not {image}; ask your operator to \
                         allow it"
            )
        };
        Err(Error::invalid("registry_not_allowed", message))
    }
}
