//! Whether logins by SSH keys are still allowed, for many sessions at a time.

use std::collections::HashSet;

use crate::db::Param;
use crate::{Result, Tx};

/// How many pairs a query covers.
const BATCH: usize = 10;

/// Returns those of the pairs of a fingerprint and a cluster in which the key still opens the cluster. Each query
/// covers ten pairs. It may return other pairs as well.
pub fn still_open(tx: &mut Tx<'_>, pairs: &[(&str, &str)]) -> Result<HashSet<(String, String)>> {
    let sql = concat!(
        "select k.fingerprint, c.id from clusters c join ssh_keys k on k.scope = c.scope \
         join users u on u.id = k.user_id where c.id in \
         ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
         and k.fingerprint in \
         ($11, $12, $13, $14, $15, $16, $17, $18, $19, $20) and ",
        saved_key_opens!(),
        " union \
         select f.fingerprint, c.id from clusters c join cluster_fingerprints f on f.cluster_id = c.id \
         join users u on u.id = c.user_id where c.id in \
         ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
         and f.fingerprint in \
         ($11, $12, $13, $14, $15, $16, $17, $18, $19, $20) and ",
        given_key_opens!()
    );
    let mut open = HashSet::with_capacity(pairs.len());
    for batch in pairs.chunks(BATCH) {
        let params: [Param<'_>; 2 * BATCH] = std::array::from_fn(|at| match batch.get(at % BATCH) {
            Some((fingerprint, cluster)) => Param::Text(if at < BATCH { cluster } else { fingerprint }),
            None => Param::Null,
        });
        open.extend(tx.rows(sql, &params, |row| Ok((row.text()?, row.text()?)))?);
    }
    Ok(open)
}
