//! Compares the counts with the rows that they count, and corrects them.

use std::fmt;

use crate::db::params;
use crate::{Result, Tx, ledger, usage};

/// Counts that differ from what exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miscount {
    /// The scope, or the account of the ledger.
    pub of: String,
    /// The wrong counts, each with what has to be added to it.
    pub missing: Vec<(&'static str, i64)>,
}

impl fmt::Display for Miscount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.of)?;
        for (at, (what, missing)) in self.missing.iter().enumerate() {
            write!(f, "{} {what} by {}", if at == 0 { " is off:" } else { "," }, -missing)?;
        }
        Ok(())
    }
}

/// The columns of the counts.
const COLUMNS: [&str; 9] = [
    "clusters",
    "hourly_rate_micros",
    "instances",
    "cpu_milli",
    "gpus",
    "volumes",
    "volume_gb",
    "promised_gb",
    "waiting",
];

/// Returns the counts that differ from what exists, by scope; then the accounts whose balance is not the sum of their
/// entries. This reads all rows.
pub fn miscounts(tx: &mut Tx<'_>) -> Result<Vec<Miscount>> {
    let sql = concat!(
        "select scope, ",
        "cast(sum(clusters) as bigint), cast(sum(rate) as bigint), cast(sum(instances) as bigint), ",
        "cast(sum(cpu_milli) as bigint), cast(sum(gpus) as bigint), cast(sum(volumes) as bigint), ",
        "cast(sum(volume_gb) as bigint), cast(sum(promised_gb) as bigint), cast(sum(waiting) as bigint) from (",
        "select scope, 1 as clusters, case when state = 'RUNNING' then hourly_rate_micros else 0 end as rate, ",
        "0 as instances, 0 as cpu_milli, 0 as gpus, 0 as volumes, 0 as volume_gb, 0 as promised_gb, 0 as waiting ",
        "from clusters where state <> 'DESTROYED' ",
        "union all select c.scope, 0, 0, 1, i.cpu_milli, i.gpu_count, 0, 0, 0, 0 from clusters c cross join instances i ",
        "where c.state <> 'DESTROYED' and i.cluster_id = c.id and ",
        node_counts!("c.state"),
        " = 1 ",
        "union all select scope, 0, 0, 0, 0, 0, 1, size_gb, coalesce(to_gb, size_gb), 0 from volumes where remains = 1 ",
        "union all select scope, 0, 0, 0, 0, 0, 0, 0, 0, 1 from requests where waiting = 1 and examined_us is not null ",
        "union all select scope, -clusters, -hourly_rate_micros, -instances, -cpu_milli, -gpus, -volumes, -volume_gb, ",
        "-promised_gb, -waiting from usage_counters) as d group by scope having sum(clusters) <> 0 or sum(rate) <> 0 ",
        "or sum(instances) <> 0 or sum(cpu_milli) <> 0 or sum(gpus) <> 0 or sum(volumes) <> 0 or sum(volume_gb) <> 0 ",
        "or sum(promised_gb) <> 0 or sum(waiting) <> 0 order by scope"
    );
    let mut found = tx.rows(sql, &[], |row| {
        let of = row.text()?;
        let mut missing = Vec::new();
        for column in COLUMNS {
            missing.push((column, row.integer()?));
        }
        missing.retain(|(_, difference)| *difference != 0);
        Ok(Miscount { of, missing })
    })?;
    let sql = "select account, cast(sum(amount_micros) as bigint) from (\
               select account, amount_micros from ledger_entries \
               union all select account, -amount_micros from ledger_balances) as d \
               group by account having sum(amount_micros) <> 0 order by account";
    found.extend(tx.rows(sql, &[], |row| Ok(Miscount { of: row.text()?, missing: vec![(BALANCE, row.integer()?)] }))?);
    Ok(found)
}

/// What [`miscounts`] calls the balance of an account.
const BALANCE: &str = "balance in micro-dollars";

/// Corrects wrong counts, and returns what was wrong. There is nothing to correct unless a program that does not count
/// wrote to the database.
pub fn correct(tx: &mut Tx<'_>) -> Result<Vec<Miscount>> {
    let found = miscounts(tx)?;
    for miscount in &found {
        let missing = |column: &str| {
            miscount.missing.iter().find(|(name, _)| *name == column).map_or(0, |(_, difference)| *difference)
        };
        if missing(BALANCE) != 0 {
            ledger::add_to_balance(tx, &miscount.of, missing(BALANCE))?;
            continue;
        }
        let [clusters, rate, instances, cpu_milli, gpus, volumes, volume_gb, promised_gb, waiting] =
            COLUMNS.map(missing);
        usage::add_requests(tx, &miscount.of, 0)?;
        let sql = "update usage_counters set clusters = clusters + $2, hourly_rate_micros = hourly_rate_micros + $3, \
                   instances = instances + $4, cpu_milli = cpu_milli + $5, gpus = gpus + $6, volumes = volumes + $7, \
                   volume_gb = volume_gb + $8, promised_gb = promised_gb + $9, waiting = waiting + $10 where scope = $1";
        tx.run(
            sql,
            &params![miscount.of, clusters, rate, instances, cpu_milli, gpus, volumes, volume_gb, promised_gb, waiting],
        )?;
    }
    Ok(found)
}
