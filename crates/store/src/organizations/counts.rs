//! What exists of an organization, or of a user without one, as counts: clusters and what they cost, what their nodes
//! use, volumes, and claims that wait.
//!
//! Every function that adds or saves such a row changes the counts in the same transaction, by the difference between
//! the row as it is in the database and as it will be. So a reader reads one row, however much exists. [`miscounts`]
//! counts everything again and compares.

/// Whether a node counts that belongs to a cluster in the given state.
macro_rules! node_counts {
    ($state:literal) => {
        concat!(
            "case when ",
            $state,
            " = 'PENDING' then 1 when ",
            $state,
            " = 'DESTROYED' then 0 else i.holds_capacity end"
        )
    };
}

mod miscounts;

use tarn_model::Money;
use tarn_model::clusters::{Cluster, Instance};
use tarn_model::lifecycle::State;
use tarn_model::requests::{Progress, Request, RequestKind};
use tarn_model::storage::Volume;

pub use self::miscounts::{Miscount, correct, miscounts};
use crate::db::params;
use crate::{Result, Tx};

/// The counts of a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Clusters that are not destroyed.
    pub clusters: u64,
    /// The hourly price of the running ones.
    pub hourly_rate: Money,
    /// The nodes of clusters that wait for capacity, and of others those that hold it.
    pub instances: u64,
    /// Thousandths of the CPUs of these nodes.
    pub cpu_milli: u64,
    /// Their GPUs.
    pub gpus: u64,
    /// Volumes of which something may exist.
    pub volumes: u64,
    /// Their size in gigabytes.
    pub volume_gb: u64,
    /// Their size with those that are being resized at the new size.
    pub promised_gb: u64,
    /// Claims that were examined, did not fit, and wait.
    pub waiting: u64,
}

/// Returns the counts of a scope.
pub fn get(tx: &mut Tx<'_>, scope: &str) -> Result<Counts> {
    let sql = "select clusters, hourly_rate_micros, instances, cpu_milli, gpus, volumes, volume_gb, promised_gb, waiting \
               from usage_counters where scope = $1";
    let counts = tx.row(sql, &params![scope], |row| {
        Ok(Counts {
            clusters: row.count()?,
            hourly_rate: row.money()?,
            instances: row.count()?,
            cpu_milli: row.count()?,
            gpus: row.count()?,
            volumes: row.count()?,
            volume_gb: row.count()?,
            promised_gb: row.count()?,
            waiting: row.count()?,
        })
    })?;
    Ok(counts.unwrap_or_default())
}

/// Counts a new cluster. Its nodes are counted by [`add_nodes`].
pub(crate) fn add_cluster(tx: &mut Tx<'_>, cluster: &Cluster) -> Result<()> {
    let rate = if cluster.state == State::Running { cluster.hourly_rate } else { Money::ZERO };
    let sql = "insert into usage_counters (scope, job_bytes, requests, outcomes, clusters, hourly_rate_micros) \
               values ($1, 0, 0, 0, $2, $3) on conflict (scope) do update set \
               clusters = usage_counters.clusters + excluded.clusters, \
               hourly_rate_micros = usage_counters.hourly_rate_micros + excluded.hourly_rate_micros";
    tx.run(sql, &params![cluster.owner.scope(), cluster.state != State::Destroyed, rate])
}

/// Counts a change of a cluster, and with it its nodes, before it is saved.
pub(crate) fn change_cluster(tx: &mut Tx<'_>, cluster: &Cluster) -> Result<()> {
    let sql = concat!(
        "update usage_counters as u set clusters = u.clusters + d.clusters, ",
        "hourly_rate_micros = u.hourly_rate_micros + d.rate, instances = u.instances + d.instances, ",
        "cpu_milli = u.cpu_milli + d.cpu_milli, gpus = u.gpus + d.gpus from (",
        "select c.scope, case when $3 = 'DESTROYED' then -1 when c.state = 'DESTROYED' then 1 else 0 end as clusters, ",
        "case when $3 = 'RUNNING' then c.hourly_rate_micros when c.state = 'RUNNING' then -c.hourly_rate_micros ",
        "else 0 end as rate, ",
        "cast(coalesce(sum(",
        node_counts!("$3"),
        " - ",
        node_counts!("c.state"),
        "), 0) as bigint) as instances, cast(coalesce(sum((",
        node_counts!("$3"),
        " - ",
        node_counts!("c.state"),
        ") * i.cpu_milli), 0) as bigint) as cpu_milli, cast(coalesce(sum((",
        node_counts!("$3"),
        " - ",
        node_counts!("c.state"),
        ") * i.gpu_count), 0) as bigint) as gpus ",
        "from clusters c left join instances i on i.cluster_id = c.id ",
        "where c.id = $1 and c.version = $2 and c.state <> $3 group by c.id, c.scope, c.state, c.hourly_rate_micros",
        ") as d where u.scope = d.scope"
    );
    tx.run(sql, &params![cluster.id, cluster.version, cluster.state.name()])
}

/// Counts new nodes of one cluster.
pub(crate) fn add_nodes(tx: &mut Tx<'_>, nodes: &[Instance]) -> Result<()> {
    let Some(first) = nodes.first() else { return Ok(()) };
    let sums = |only_holding: bool| {
        let counted = nodes.iter().filter(|node| node.holds_capacity || !only_holding);
        counted.fold((0_u64, 0_u64, 0_u64), |(count, cpu_milli, gpus), node| {
            let (cpu, gpu) = (node.shape.cpu_milli, u64::from(node.shape.gpus));
            (count + 1, cpu_milli.saturating_add(cpu), gpus.saturating_add(gpu))
        })
    };
    let (all, held) = (sums(false), sums(true));
    let sql = "update usage_counters as u set \
               instances = u.instances + case when c.state = 'PENDING' then cast($2 as bigint) else cast($5 as bigint) end, \
               cpu_milli = u.cpu_milli + case when c.state = 'PENDING' then cast($3 as bigint) else cast($6 as bigint) end, \
               gpus = u.gpus + case when c.state = 'PENDING' then cast($4 as bigint) else cast($7 as bigint) end \
               from clusters c where c.id = $1 and c.state <> 'DESTROYED' and u.scope = c.scope";
    tx.run(sql, &params![first.cluster, all.0, all.1, all.2, held.0, held.1, held.2])
}

/// Counts a change of a node, before it is saved.
pub(crate) fn change_node(tx: &mut Tx<'_>, node: &Instance) -> Result<()> {
    let sql = "update usage_counters as u set instances = u.instances + d.change, \
               cpu_milli = u.cpu_milli + d.change * d.cpu_milli, gpus = u.gpus + d.change * d.gpu_count from (\
               select c.scope, $2 - i.holds_capacity as change, i.cpu_milli, i.gpu_count \
               from instances i join clusters c on c.id = i.cluster_id \
               where i.id = $1 and i.holds_capacity <> $2 and c.state not in ('PENDING', 'DESTROYED')) as d \
               where u.scope = d.scope";
    tx.run(sql, &params![node.id, node.holds_capacity])
}

/// What a volume adds to the counts.
pub(crate) struct VolumeShare {
    pub(crate) remains: bool,
    pub(crate) to_gb: Option<u64>,
}

impl VolumeShare {
    /// Returns how many volumes, their gigabytes, and those that are promised.
    fn counts(&self, size_gb: u64) -> (u64, u64, u64) {
        if self.remains { (1, size_gb, self.to_gb.unwrap_or(size_gb)) } else { (0, 0, 0) }
    }
}

/// Counts a new volume.
pub(crate) fn add_volume(tx: &mut Tx<'_>, volume: &Volume, share: &VolumeShare) -> Result<()> {
    let (volumes, size_gb, promised_gb) = share.counts(volume.size_gb);
    let sql = "insert into usage_counters (scope, job_bytes, requests, outcomes, volumes, volume_gb, promised_gb) \
               values ($1, 0, 0, 0, $2, $3, $4) on conflict (scope) do update set \
               volumes = usage_counters.volumes + excluded.volumes, \
               volume_gb = usage_counters.volume_gb + excluded.volume_gb, \
               promised_gb = usage_counters.promised_gb + excluded.promised_gb";
    tx.run(sql, &params![volume.owner.scope(), volumes, size_gb, promised_gb])
}

/// Counts a change of a volume, before it is saved.
pub(crate) fn change_volume(tx: &mut Tx<'_>, volume: &Volume, share: &VolumeShare) -> Result<()> {
    let (volumes, size_gb, promised_gb) = share.counts(volume.size_gb);
    let sql = "update usage_counters as u set volumes = u.volumes + $3 - d.volumes, \
               volume_gb = u.volume_gb + $4 - d.size_gb, promised_gb = u.promised_gb + $5 - d.promised_gb from (\
               select scope, remains as volumes, remains * size_gb as size_gb, \
               remains * coalesce(to_gb, size_gb) as promised_gb from volumes where id = $1 and version = $2) as d \
               where u.scope = d.scope and (d.volumes <> $3 or d.size_gb <> $4 or d.promised_gb <> $5)";
    tx.run(sql, &params![volume.id, volume.version, volumes, size_gb, promised_gb])
}

/// Adds to the number of claims of a scope that were examined and wait.
pub(crate) fn add_waiting(tx: &mut Tx<'_>, scope: &str, count: i64) -> Result<()> {
    tx.run("update usage_counters set waiting = waiting + $2 where scope = $1", &params![scope, count])
}

/// Counts a change of a claim, before it is saved. Other requests never wait.
pub(crate) fn change_claim(tx: &mut Tx<'_>, request: &Request) -> Result<()> {
    if !matches!(request.kind, RequestKind::ClaimCluster(_)) {
        return Ok(());
    }
    let sql = "update usage_counters as u set waiting = u.waiting + $3 - d.waiting from (\
               select scope, waiting from requests where id = $1 and epoch = $2 and ended_us is null \
               and examined_us is not null and waiting <> $3) as d where u.scope = d.scope";
    tx.run(sql, &params![request.id, request.epoch, request.progress == Progress::Queued])
}
