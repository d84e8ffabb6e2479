//! Saved SSH keys.

use tarn_model::ids::SshKeyId;
use tarn_model::ssh_keys::SshKey;
use tarn_model::users::Owner;

use crate::db::{Row, params};
use crate::{OwnerFilter, Result, Tx};

/// The maximum number of keys of a scope. All of them are installed on every new cluster.
pub const MAX_PER_SCOPE: u64 = 1000;

/// The maximum number of proofs of a scope, which is more than it has keys. A proof stays when its key is removed:
/// without it, the copy of a stranger would be the only one, and would need none.
pub const MAX_PROOFS: u64 = 10_000;

/// Every query of this file reads the same columns, in the order of [`read_ssh_key`].
macro_rules! select {
    ($rest:literal) => {
        concat!("select id, user_id, org_id, name, public_key, fingerprint, created_us from ssh_keys ", $rest)
    };
}

/// Adds a key. `Taken` when the user has it already.
pub fn insert(tx: &mut Tx<'_>, key: &SshKey) -> Result<()> {
    let sql = "insert into ssh_keys (id, user_id, org_id, scope, name, public_key, fingerprint, created_us) \
               values ($1, $2, $3, $4, $5, $6, $7, $8)";
    tx.run(sql, &params!(key: id, owner.user, owner.org, owner.scope(), name, public_key, fingerprint, created))
}

/// Returns the key with this id.
pub fn get(tx: &mut Tx<'_>, id: &SshKeyId) -> Result<Option<SshKey>> {
    tx.row(select!("where id = $1"), &params![id], read_ssh_key)
}

/// Returns the user's key with this fingerprint.
pub fn find(tx: &mut Tx<'_>, user: &str, fingerprint: &str) -> Result<Option<SshKey>> {
    let sql = select!("where user_id = $1 and fingerprint = $2");
    tx.row(sql, &params![user, fingerprint], read_ssh_key)
}

/// Returns the keys of a user or of a scope, oldest first.
pub fn list(tx: &mut Tx<'_>, owner: OwnerFilter<'_>) -> Result<Vec<SshKey>> {
    let (sql, id) = match owner {
        OwnerFilter::User { user, .. } => (select!("where user_id = $1 order by created_us, id limit 1000"), user),
        OwnerFilter::Scope(scope) => (select!("where scope = $1 order by created_us, id limit 1000"), scope),
    };
    tx.rows(sql, &params![id], read_ssh_key)
}

/// Returns the keys of all users with this fingerprint, oldest first; at most a thousand.
pub fn with_fingerprint(tx: &mut Tx<'_>, fingerprint: &str) -> Result<Vec<SshKey>> {
    let sql = select!("where fingerprint = $1 order by created_us, id limit 1000");
    tx.rows(sql, &params![fingerprint], read_ssh_key)
}

/// Remembers that the holder of a key has proven it in a scope. Returns whether that was not known yet. Beyond
/// [`MAX_PROOFS`] the oldest proof of a key that the scope no longer has saved is forgotten.
pub fn save_proof(tx: &mut Tx<'_>, fingerprint: &str, scope: &str) -> Result<bool> {
    if is_proven_in(tx, fingerprint, scope)? {
        return Ok(false);
    }
    let sql = "select count(*) from ssh_key_proofs where scope = $1";
    if tx.single(sql, &params![scope], |row| row.count::<u64>())? >= MAX_PROOFS {
        let sql = "delete from ssh_key_proofs where scope = $1 and fingerprint in (\
                   select p.fingerprint from ssh_key_proofs p where p.scope = $1 and not exists (\
                   select 1 from ssh_keys k where k.scope = p.scope and k.fingerprint = p.fingerprint) \
                   order by p.proven_us, p.fingerprint limit 1)";
        tx.run(sql, &params![scope])?;
    }
    let sql = "insert into ssh_key_proofs (fingerprint, scope, proven_us) values ($1, $2, $3) on conflict do nothing";
    let now = tx.now();
    tx.run(sql, &params![fingerprint, scope, now])?;
    Ok(true)
}

/// Returns whether the holder of a key has proven it anywhere.
pub fn is_proven(tx: &mut Tx<'_>, fingerprint: &str) -> Result<bool> {
    tx.has_row("select 1 from ssh_key_proofs where fingerprint = $1 limit 1", &params![fingerprint])
}

/// Returns whether the holder of a key has proven it in a scope.
pub fn is_proven_in(tx: &mut Tx<'_>, fingerprint: &str, scope: &str) -> Result<bool> {
    tx.has_row("select 1 from ssh_key_proofs where fingerprint = $1 and scope = $2", &params![fingerprint, scope])
}

/// Returns the texts of the keys that open the clusters of a scope, without duplicates: those saved by users who are
/// not disabled and have not left.
pub fn opening(tx: &mut Tx<'_>, scope: &str) -> Result<Vec<String>> {
    let sql = "select distinct k.public_key from ssh_keys k join users u on u.id = k.user_id \
               where k.scope = $1 and u.disabled = 0 and (k.org_id is null or k.org_id = u.org_id) \
               order by k.public_key limit 1000";
    tx.rows(sql, &params![scope], |row| row.text())
}

/// Returns the total size of a scope's keys in bytes.
pub fn total_bytes(tx: &mut Tx<'_>, scope: &str) -> Result<u64> {
    let sql = "select cast(coalesce(sum(octet_length(public_key)), 0) as bigint) from ssh_keys where scope = $1";
    tx.single(sql, &params![scope], |row| row.count())
}

/// Returns the number of keys of a scope.
pub fn count(tx: &mut Tx<'_>, scope: &str) -> Result<u64> {
    tx.single("select count(*) from ssh_keys where scope = $1", &params![scope], |row| row.count())
}

/// Removes a key.
pub fn remove(tx: &mut Tx<'_>, id: &SshKeyId) -> Result<()> {
    tx.execute_guarded("delete from ssh_keys where id = $1", &params![id])
}

fn read_ssh_key(row: &mut Row) -> Result<SshKey> {
    let id = row.id()?;
    let owner = Owner { user: row.id()?, org: row.maybe_id()? };
    Ok(SshKey { id, owner, name: row.text()?, public_key: row.text()?, fingerprint: row.text()?, created: row.time()? })
}
