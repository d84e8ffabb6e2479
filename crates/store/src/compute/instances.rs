//! Instances: the nodes of clusters, and the host capacity they hold.

use std::collections::BTreeMap;

use tarn_model::capacity::{HeldCapacity, Shape};
use tarn_model::clusters::{Cluster, Instance};
use tarn_model::ids::{ClusterId, InstanceId, VolumeId};

use crate::clusters::read_state;
use crate::db::{Param, Row, params};
use crate::{Result, Tx, counts};

/// Every query of this file reads the same columns, in the order of [`read_instance`].
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select id, cluster_id, node, state, reason, cpu_milli, memory_bytes, gpu_count, gpu_model, gpus, ",
            "holds_capacity, boot, private_ip from instances ",
            $rest
        )
    };
}

/// Adds instances of one cluster, which has its row already.
pub fn insert_all(tx: &mut Tx<'_>, instances: &[Instance]) -> Result<()> {
    instances.iter().try_for_each(|instance| insert_row(tx, instance))?;
    counts::add_nodes(tx, instances)
}

/// Adds an instance.
pub fn insert(tx: &mut Tx<'_>, instance: &Instance) -> Result<()> {
    insert_all(tx, std::slice::from_ref(instance))
}

fn insert_row(tx: &mut Tx<'_>, instance: &Instance) -> Result<()> {
    let sql = "insert into instances (id, cluster_id, node, state, reason, cpu_milli, memory_bytes, gpu_count, gpu_model, gpus, \
               holds_capacity, boot, private_ip) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
    tx.run(
        sql,
        &params!(instance: id, cluster, node, state.name(), state.reason(), shape.cpu_milli, shape.memory_bytes,
            shape.gpus, shape.gpu_model, gpus.join(","), holds_capacity, boot, private_ip),
    )
}

/// Saves the mutable columns. The cluster's version guards them: both rows are always saved together.
pub fn save(tx: &mut Tx<'_>, instance: &Instance) -> Result<()> {
    counts::change_node(tx, instance)?;
    let sql = "update instances set state = $1, reason = $2, gpus = $3, holds_capacity = $4, boot = $5, private_ip = $6 \
               where id = $7";
    tx.execute_guarded(
        sql,
        &params!(instance: state.name(), state.reason(), gpus.join(","), holds_capacity, boot, private_ip, id),
    )
}

/// Returns the instance with this id.
pub fn get(tx: &mut Tx<'_>, id: &InstanceId) -> Result<Option<Instance>> {
    tx.row(select!("where id = $1"), &params![id], read_instance)
}

/// Returns the instances of a cluster, ordered by node.
pub fn of_cluster(tx: &mut Tx<'_>, cluster: &ClusterId) -> Result<Vec<Instance>> {
    tx.rows(select!("where cluster_id = $1 order by node"), &params![cluster], read_instance)
}

/// Returns the instances of several clusters, ordered by cluster and node. Each query covers twenty clusters.
pub fn of_clusters(tx: &mut Tx<'_>, clusters: &[Cluster]) -> Result<BTreeMap<ClusterId, Vec<Instance>>> {
    let sql = select!(
        "where cluster_id in ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20) \
         order by cluster_id, node"
    );
    let mut found: BTreeMap<ClusterId, Vec<Instance>> = BTreeMap::new();
    for some in clusters.chunks(20) {
        let ids: [Param<'_>; 20] =
            std::array::from_fn(|at| some.get(at).map_or(Param::Null, |cluster| Param::Text(cluster.id.as_str())));
        for instance in tx.rows(sql, &ids, read_instance)? {
            found.entry(instance.cluster.clone()).or_default().push(instance);
        }
    }
    Ok(found)
}

/// Returns what all placed instances hold together, and what is withheld from new ones.
pub fn held(tx: &mut Tx<'_>) -> Result<HeldCapacity> {
    let sql = "select cast(coalesce(sum(cpu_milli), 0) as bigint), cast(coalesce(sum(memory_bytes), 0) as bigint) \
               from instances where holds_capacity = 1";
    let mut held = tx.single(sql, &[], |row| {
        Ok(HeldCapacity { cpu_milli: row.count()?, memory_bytes: row.count()?, ..HeldCapacity::default() })
    })?;
    for mut row in tx.query("select gpus from instances where holds_capacity = 1 and gpus <> ''", &[])? {
        held.gpus.extend(row.text()?.split(',').map(str::to_owned));
    }
    held.withheld = crate::gpus::withheld(tx)?;
    if !held.gpus.is_empty() {
        held.keep_apart(crate::gpus::slices(tx)?);
    }
    held.closed = crate::host::drain(tx)?.map(|drain| drain.to_string());
    Ok(held)
}

/// Returns the owner of each GPU: the instance and its cluster.
pub fn gpu_owners(tx: &mut Tx<'_>) -> Result<BTreeMap<String, (InstanceId, ClusterId)>> {
    let sql = "select id, cluster_id, gpus from instances where holds_capacity = 1 and gpus <> ''";
    let mut owners = BTreeMap::new();
    for mut row in tx.query(sql, &[])? {
        let owner: (InstanceId, ClusterId) = (row.id()?, row.id()?);
        owners.extend(row.text()?.split(',').map(|gpu| (gpu.to_owned(), owner.clone())));
    }
    Ok(owners)
}

/// An instance as the database records it, for comparison with what the driver observes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    pub instance: Instance,
    /// The volume that should be mounted in the instance.
    pub volume: Option<VolumeId>,
}

macro_rules! select_claimed {
    ($rest:literal) => {
        concat!(
            "select i.id, i.cluster_id, i.node, i.state, i.reason, i.cpu_milli, i.memory_bytes, i.gpu_count, i.gpu_model, ",
            "i.gpus, i.holds_capacity, i.boot, i.private_ip, a.volume_id ",
            "from instances i left join attachments a on a.cluster_id = i.cluster_id ",
            $rest
        )
    };
}

/// Returns a page of the instances that may exist, which are those that hold capacity, ordered by id.
pub fn holding(tx: &mut Tx<'_>, after: Option<&InstanceId>, limit: u32) -> Result<Vec<Claimed>> {
    let sql = select_claimed!("where i.holds_capacity = 1 and i.id > $1 order by i.id limit $2");
    tx.rows(sql, &params![after_id(after), limit], read_claimed)
}

/// Returns a page of the instances of clusters that are not destroyed which hold no capacity, ordered by id. It reads
/// all instances that ever existed.
pub fn not_holding(tx: &mut Tx<'_>, after: Option<&InstanceId>, limit: u32) -> Result<Vec<Claimed>> {
    let sql = select_claimed!(
        "cross join clusters c where c.id = i.cluster_id and c.state <> 'DESTROYED' and i.holds_capacity = 0 \
         and i.id > $1 order by i.id limit $2"
    );
    tx.rows(sql, &params![after_id(after), limit], read_claimed)
}

/// Returns those of the instances that belong to a cluster that is not destroyed. Each query covers twenty ids.
pub fn claimed(tx: &mut Tx<'_>, instances: &[&InstanceId]) -> Result<Vec<Claimed>> {
    let sql = select_claimed!(
        "cross join clusters c where c.id = i.cluster_id and c.state <> 'DESTROYED' and i.id in \
         ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)"
    );
    let mut found = Vec::new();
    for some in instances.chunks(20) {
        let ids: [Param<'_>; 20] =
            std::array::from_fn(|at| some.get(at).map_or(Param::Null, |id| Param::Text(id.as_str())));
        found.extend(tx.rows(sql, &ids, read_claimed)?);
    }
    Ok(found)
}

/// Returns a page of the running instances with the number of their current boot, ordered by id.
pub fn running(tx: &mut Tx<'_>, after: Option<&InstanceId>, limit: u32) -> Result<Vec<(InstanceId, u32)>> {
    let sql = "select id, boot from instances where holds_capacity = 1 and state = 'RUNNING' and id > $1 \
               order by id limit $2";
    tx.rows(sql, &params![after_id(after), limit], |row| Ok((row.id()?, row.count()?)))
}

fn after_id(after: Option<&InstanceId>) -> &str {
    after.map_or("", InstanceId::as_str)
}

fn read_claimed(row: &mut Row) -> Result<Claimed> {
    Ok(Claimed { instance: read_instance(row)?, volume: row.maybe_id()? })
}

fn read_instance(row: &mut Row) -> Result<Instance> {
    Ok(Instance {
        id: row.id()?,
        cluster: row.id()?,
        node: row.count()?,
        state: read_state(row)?,
        shape: read_shape(row)?,
        gpus: row.text()?.split(',').filter(|gpu| !gpu.is_empty()).map(str::to_owned).collect(),
        holds_capacity: row.flag()?,
        boot: row.count()?,
        private_ip: row.maybe_text()?,
    })
}

pub(crate) fn read_shape(row: &mut Row) -> Result<Shape> {
    let (cpu_milli, memory_bytes) = (row.count()?, row.count()?);
    Ok(Shape { cpu_milli, memory_bytes, gpus: row.count()?, gpu_model: row.maybe_text()? })
}
