//! Removes rows that ended long ago, in batches. Events and the ledger are kept.

use tarn_model::Time;

use crate::db::params;
use crate::{Result, Tx, requests};

/// Removes clusters, volumes, requests and S3 keys that ended before `expired`. Returns the number of rows removed.
pub fn forget_ended(tx: &mut Tx<'_>, expired: Time) -> Result<u64> {
    let mut forgotten = 0;
    for sql in [
        "delete from instances where cluster_id in \
         (select id from clusters where state = 'DESTROYED' and since_us <= $1 order by since_us limit 100)",
        "delete from cluster_keys where cluster_id in \
         (select id from clusters where state = 'DESTROYED' and since_us <= $1 order by since_us limit 100)",
        "delete from cluster_fingerprints where cluster_id in \
         (select id from clusters where state = 'DESTROYED' and since_us <= $1 order by since_us limit 100)",
        "delete from clusters where id in \
         (select id from clusters where state = 'DESTROYED' and since_us <= $1 order by since_us limit 100)",
        "delete from volumes where id in \
         (select id from volumes where state = 'DESTROYED' and since_us <= $1 order by since_us limit 100)",
        "delete from s3_keys where access_key in \
         (select access_key from s3_keys where ends_us is not null and ends_us <= $1 order by ends_us limit 500)",
    ] {
        forgotten += tx.execute(sql, &params![expired])?;
    }
    Ok(forgotten + requests::remove_ended(tx, expired, 500)?)
}
