//! Clusters: rows, lookups and lists.

use tarn_model::clusters::Cluster;
use tarn_model::ids::ClusterId;
use tarn_model::lifecycle::State;
use tarn_model::users::Owner;

use crate::db::{Row, params};
use crate::listing::list_sql;
use crate::{Error, Listing, Result, Tx, counts};

/// Every query of this file reads the same columns, in the order of [`read_cluster`].
macro_rules! select {
    ($($rest:tt)*) => {
        concat!(
            "select id, name, user_id, org_id, instance_type, num_nodes, hourly_rate_micros, container, image, ",
            "deletion_protection, jobs_parallel, state, reason, since_us, created_us, version from clusters ",
            $($rest)*
        )
    };
}

/// Adds a cluster. `Taken` when its owner has a live cluster of that name.
pub fn insert(tx: &mut Tx<'_>, cluster: &Cluster) -> Result<()> {
    let sql = "insert into clusters (id, scope, name, user_id, org_id, instance_type, num_nodes, hourly_rate_micros, container, \
               image, deletion_protection, jobs_parallel, state, reason, since_us, created_us, version) \
               values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)";
    tx.run(
        sql,
        &params!(cluster: id, owner.scope(), name, owner.user, owner.org, instance_type, num_nodes, hourly_rate,
            container, image, deletion_protection, jobs_parallel, state.name(), state.reason(), since, created,
            version),
    )?;
    counts::add_cluster(tx, cluster)
}

/// Saves the mutable columns. `Conflict` when the row was changed since it was read, `Taken` when the new name is in
/// use.
pub fn save(tx: &mut Tx<'_>, cluster: &Cluster) -> Result<()> {
    counts::change_cluster(tx, cluster)?;
    let sql = "update clusters set name = $1, deletion_protection = $2, state = $3, reason = $4, since_us = $5, image = $6, \
               version = version + 1 where id = $7 and version = $8";
    tx.execute_guarded(
        sql,
        &params!(cluster: name, deletion_protection, state.name(), state.reason(), since, image, id, version),
    )
}

/// Returns the cluster with this id, of any owner.
pub fn get(tx: &mut Tx<'_>, id: &ClusterId) -> Result<Option<Cluster>> {
    tx.row(select!("where id = $1"), &params![id], read_cluster)
}

/// Returns the live cluster with this name in a scope.
pub fn find(tx: &mut Tx<'_>, scope: &str, name: &str) -> Result<Option<Cluster>> {
    let sql = select!("where scope = $1 and name = $2 and state <> 'DESTROYED'");
    tx.row(sql, &params![scope, name], read_cluster)
}

/// Returns whether a cluster of a scope that is not destroyed has this name.
pub fn is_named(tx: &mut Tx<'_>, scope: &str, name: &str) -> Result<bool> {
    let sql = "select 1 from clusters where scope = $1 and name = $2 and state <> 'DESTROYED'";
    tx.has_row(sql, &params![scope, name])
}

/// Returns a page of clusters, newest first.
pub fn list(tx: &mut Tx<'_>, listing: &Listing<'_>) -> Result<Vec<Cluster>> {
    let sql = list_sql!(select, listing);
    tx.rows(sql, &listing.params_with_scope(), read_cluster)
}

/// Returns a page of the clusters that have instances which may exist, because they hold capacity, ordered by id.
pub fn holding(tx: &mut Tx<'_>, after: Option<&ClusterId>, limit: u32) -> Result<Vec<Cluster>> {
    let sql = select!(
        "where id in (select distinct cluster_id from instances where holds_capacity = 1 and cluster_id > $1 \
         order by cluster_id limit $2) order by id"
    );
    tx.rows(sql, &params![after.map_or("", ClusterId::as_str), limit], read_cluster)
}

/// Returns a page of the clusters that are not destroyed, ordered by id. It reads all clusters that ever existed.
pub fn live(tx: &mut Tx<'_>, after: Option<&ClusterId>, limit: u32) -> Result<Vec<Cluster>> {
    let sql = select!("where state <> 'DESTROYED' and id > $1 order by id limit $2");
    tx.rows(sql, &params![after.map_or("", ClusterId::as_str), limit], read_cluster)
}

/// Returns the live clusters that a key opens, newest first, at most a thousand: those of the scopes in which a user
/// saved it, and those created with it. Keys of users who are disabled or have left open nothing.
pub fn opened_by(tx: &mut Tx<'_>, fingerprint: &str) -> Result<Vec<Cluster>> {
    let sql = select!(
        "where state <> 'DESTROYED' and id in (\
           select c.id from ssh_keys k join users u on u.id = k.user_id join clusters c on c.scope = k.scope \
           where k.fingerprint = $1 and c.state <> 'DESTROYED' and ",
        saved_key_opens!(),
        " union \
           select c.id from cluster_fingerprints f join clusters c on c.id = f.cluster_id join users u on u.id = c.user_id \
           where f.fingerprint = $1 and c.state <> 'DESTROYED' and ",
        given_key_opens!(),
        ") order by created_us desc, id desc limit 1000"
    );
    tx.rows(sql, &params![fingerprint], read_cluster)
}

/// Returns the number of failed clusters.
pub fn count_failed(tx: &mut Tx<'_>) -> Result<u64> {
    tx.single("select count(*) from clusters where state = 'FAILED'", &[], |row| row.count())
}

fn read_cluster(row: &mut Row) -> Result<Cluster> {
    Ok(Cluster {
        id: row.id()?,
        name: row.text()?,
        owner: Owner { user: row.id()?, org: row.maybe_id()? },
        instance_type: row.text()?,
        num_nodes: row.count()?,
        hourly_rate: row.money()?,
        container: row.maybe_text()?,
        image: row.maybe_text()?,
        deletion_protection: row.flag()?,
        jobs_parallel: row.count()?,
        state: read_state(row)?,
        since: row.time()?,
        created: row.time()?,
        version: row.integer()?,
    })
}

/// Reads the two columns of a state: its name and the reason of a failure.
pub(crate) fn read_state(row: &mut Row) -> Result<State> {
    let (name, reason) = (row.text()?, row.maybe_text()?);
    State::from_name(&name, reason).ok_or_else(|| Error::Corrupt(format!("there is no state {name}")))
}
