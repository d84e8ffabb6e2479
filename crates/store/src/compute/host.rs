//! The drain of the host: whether it accepts new instances.

use tarn_model::gpus::Drain;

use crate::db::params;
use crate::{Result, Tx};

/// The key of the only host.
const HOST: &str = "host";

/// Returns since when and why the host accepts nothing new; `None` when it is not drained.
pub fn drain(tx: &mut Tx<'_>) -> Result<Option<Drain>> {
    tx.row("select reason, since_us from host_drains where host = $1", &params![HOST], |row| {
        Ok(Drain { reason: row.maybe_text()?, since: row.time()? })
    })
}

/// Saves or removes the drain of the host.
pub fn set_drain(tx: &mut Tx<'_>, drain: Option<&Drain>) -> Result<()> {
    tx.execute("delete from host_drains where host = $1", &params![HOST])?;
    if let Some(drain) = drain {
        let sql = "insert into host_drains (host, reason, since_us) values ($1, $2, $3)";
        tx.execute(sql, &params![HOST, drain.reason, drain.since])?;
    }
    Ok(())
}
