//! Limits of organizations and of users without one, and what counts against them.

use tarn_model::limits::{Amounts, Limits};

use crate::db::Row;
use crate::{Error, Result, Tx};

/// The own limits of a scope; none at all when nothing was set.
pub fn get(tx: &mut Tx<'_>, scope: &str) -> Result<Limits> {
    let sql = "select instances, cpu_milli, gpus, volume_gb, object_bytes from limits where scope = $1";
    Ok(tx.query_one(sql, &[scope.into()])?.map(read).transpose()?.unwrap_or_default())
}

/// How many bytes of objects an organization may have, if it has a limit of its own.
pub fn object_bytes(tx: &mut Tx<'_>, scope: &str) -> Result<Option<u64>> {
    Ok(get(tx, scope)?.object_bytes)
}

/// Sets all limits of a scope. With none left it is forgotten.
pub fn set(tx: &mut Tx<'_>, scope: &str, limits: &Limits) -> Result<()> {
    tx.execute("delete from limits where scope = $1", &[scope.into()])?;
    if limits.is_empty() {
        return Ok(());
    }
    let now = tx.now();
    let sql = "insert into limits (scope, instances, cpu_milli, gpus, volume_gb, object_bytes, changed_us) \
               values ($1, $2, $3, $4, $5, $6, $7)";
    let values = [
        scope.into(),
        limits.instances.into(),
        limits.cpu_milli.into(),
        limits.gpus.into(),
        limits.volume_gb.into(),
        limits.object_bytes.into(),
        now.into(),
    ];
    tx.execute(sql, &values)?;
    Ok(())
}

/// The scopes that have limits of their own, in the order of their ids, after this one.
pub fn list(tx: &mut Tx<'_>, after: &str, limit: u32) -> Result<Vec<String>> {
    let sql = "select scope from limits where scope > $1 order by scope limit $2";
    tx.query(sql, &[after.into(), limit.into()])?.into_iter().map(|mut row| row.text()).collect()
}

/// What a scope has now. A cluster that waits for capacity counts with all of its nodes, and one that failed with what it still
/// holds; a volume that grows counts with its new size.
pub fn used(tx: &mut Tx<'_>, scope: &str) -> Result<Amounts> {
    // The cross join begins with the clusters of the scope, which are few.
    let sql = "select count(*), cast(coalesce(sum(i.cpu_milli), 0) as bigint), cast(coalesce(sum(i.gpu_count), 0) as bigint) \
               from clusters c cross join instances i where c.scope = $1 and c.state <> 'DESTROYED' \
               and i.cluster_id = c.id and (i.holds_capacity = 1 or c.state = 'PENDING')";
    let mut row = tx.query_one(sql, &[scope.into()])?.ok_or(Error::Conflict)?;
    let nodes = Amounts { instances: row.count()?, cpu_milli: row.count()?, gpus: row.count()?, ..Amounts::default() };
    let sql = "select cast(coalesce(sum(coalesce(to_gb, size_gb)), 0) as bigint) from volumes \
               where scope = $1 and remains = 1";
    let volume_gb = tx.query_one(sql, &[scope.into()])?.ok_or(Error::Conflict)?.count()?;
    let account = tx.query_one("select bytes from accounts where org_id = $1", &[scope.into()])?;
    let object_bytes = account.map(|mut row| row.count()).transpose()?.unwrap_or(0);
    Ok(Amounts { volume_gb, object_bytes, ..nodes })
}

fn read(mut row: Row) -> Result<Limits> {
    let mut amount = || -> Result<Option<u64>> {
        let value = row.maybe_integer()?;
        value.map(u64::try_from).transpose().map_err(|error| Error::Corrupt(error.to_string()))
    };
    Ok(Limits {
        instances: amount()?,
        cpu_milli: amount()?,
        gpus: amount()?,
        volume_gb: amount()?,
        object_bytes: amount()?,
    })
}
