//! SSH keys given with the creation of a cluster, in addition to those that its owners saved.

use std::collections::BTreeSet;

use tarn_model::ids::{ClusterId, UserId};
use tarn_model::ssh_keys::{self, ParsedKey};

use crate::db::params;
use crate::{Result, Tx};

/// Saves the keys of one cluster.
pub fn save(tx: &mut Tx<'_>, id: &ClusterId, keys: &[ParsedKey]) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let lines: Vec<&str> = keys.iter().map(|key| key.public_key.as_str()).collect();
    let sql = "insert into cluster_keys (cluster_id, public_keys) values ($1, $2)";
    tx.execute(sql, &params![id, lines.join("\n")])?;
    keys.iter().try_for_each(|key| save_fingerprint(tx, id.as_str(), &key.fingerprint))
}

/// Returns the keys of one cluster that open it: none while its creator is disabled or has left the organization, and
/// none that another user without access saved.
pub fn opening(tx: &mut Tx<'_>, id: &ClusterId) -> Result<Vec<String>> {
    let sql = "select public_keys from cluster_keys where cluster_id = $1";
    let Some(text) = tx.row(sql, &params![id], |row| row.text())? else { return Ok(Vec::new()) };
    let sql = concat!(
        "select f.fingerprint from cluster_fingerprints f join clusters c on c.id = f.cluster_id \
         join users u on u.id = c.user_id where f.cluster_id = $1 and ",
        given_key_opens!()
    );
    let open: BTreeSet<String> = tx.rows(sql, &params![id], |row| row.text())?.into_iter().collect();
    let is_open = |line: &&str| ssh_keys::parse(line).is_ok_and(|key| open.contains(&key.fingerprint));
    Ok(text.lines().filter(is_open).map(str::to_owned).collect())
}

/// Returns whether a key was given to a cluster.
pub fn was_given(tx: &mut Tx<'_>, id: &ClusterId, fingerprint: &str) -> Result<bool> {
    let sql = "select count(*) from cluster_fingerprints where fingerprint = $1 and cluster_id = $2";
    Ok(tx.single(sql, &params![fingerprint, id], |row| row.integer())? > 0)
}

/// Returns the size in bytes of the longest key list of the live clusters of a scope.
pub fn longest_bytes(tx: &mut Tx<'_>, scope: &str) -> Result<u64> {
    let sql = "select cast(coalesce(max(octet_length(k.public_keys)), 0) as bigint) from cluster_keys k \
               join clusters c on c.id = k.cluster_id where c.scope = $1 and c.state <> 'DESTROYED'";
    tx.single(sql, &params![scope], |row| row.count())
}

/// Removes a key from the live clusters of a scope, of one creator or of all. Returns the number of clusters it was
/// removed from.
pub fn withdraw(tx: &mut Tx<'_>, scope: &str, fingerprint: &str, creator: Option<&UserId>) -> Result<u64> {
    let sql = "select k.cluster_id, k.public_keys from cluster_fingerprints f join clusters c on c.id = f.cluster_id \
               join cluster_keys k on k.cluster_id = f.cluster_id \
               where f.fingerprint = $1 and c.scope = $2 and c.state <> 'DESTROYED' and ($3 = '' or c.user_id = $3)";
    let creator = creator.map_or("", UserId::as_str);
    let mut clusters = 0;
    for mut row in tx.query(sql, &params![fingerprint, scope, creator])? {
        let (id, text) = (row.text()?, row.text()?);
        let is_meant = |line: &str| ssh_keys::parse(line).is_ok_and(|key| key.fingerprint == fingerprint);
        let left: Vec<&str> = text.lines().filter(|line| !is_meant(line)).collect();
        if left.is_empty() {
            tx.execute("delete from cluster_keys where cluster_id = $1", &params![id])?
        } else {
            let sql = "update cluster_keys set public_keys = $1 where cluster_id = $2";
            tx.execute(sql, &params![left.join("\n"), id])?
        };
        let sql = "delete from cluster_fingerprints where fingerprint = $1 and cluster_id = $2";
        tx.execute(sql, &params![fingerprint, id])?;
        clusters += 1;
    }
    Ok(clusters)
}

/// Adds missing fingerprints for a batch of clusters whose ids come after `after`: keys saved by older versions have
/// none. Returns the last id of the batch; `None` when there are no more.
pub(crate) fn fill_fingerprints(tx: &mut Tx<'_>, after: &str) -> Result<Option<String>> {
    let sql = "select k.cluster_id, k.public_keys from cluster_keys k where k.cluster_id > $1 \
               and not exists (select 1 from cluster_fingerprints f where f.cluster_id = k.cluster_id) \
               order by k.cluster_id limit 100";
    let mut last = None;
    for mut row in tx.query(sql, &params![after])? {
        let (id, text) = (row.text()?, row.text()?);
        for key in text.lines().filter_map(|line| ssh_keys::parse(line).ok()) {
            save_fingerprint(tx, &id, &key.fingerprint)?;
        }
        last = Some(id);
    }
    Ok(last)
}

fn save_fingerprint(tx: &mut Tx<'_>, cluster: &str, fingerprint: &str) -> Result<()> {
    let sql = "insert into cluster_fingerprints (fingerprint, cluster_id) values ($1, $2) on conflict do nothing";
    tx.run(sql, &params![fingerprint, cluster])
}
