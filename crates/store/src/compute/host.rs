//! The drain of the host: whether it accepts new instances.

use tarn_model::gpus::Drain;

use crate::{Result, Tx};

/// The key of the only host.
const HOST: &str = "host";

/// Returns since when and why the host accepts nothing new; `None` when it is not drained.
pub fn drain(tx: &mut Tx<'_>) -> Result<Option<Drain>> {
    let row = tx.query_one("select reason, since_us from host_drains where host = $1", &[HOST.into()])?;
    row.map(|mut row| Ok(Drain { reason: row.maybe_text()?, since: row.time()? })).transpose()
}

/// Saves or removes the drain of the host.
pub fn set_drain(tx: &mut Tx<'_>, drain: Option<&Drain>) -> Result<()> {
    tx.execute("delete from host_drains where host = $1", &[HOST.into()])?;
    if let Some(drain) = drain {
        let sql = "insert into host_drains (host, reason, since_us) values ($1, $2, $3)";
        tx.execute(sql, &[HOST.into(), drain.reason.as_deref().into(), drain.since.into()])?;
    }
    Ok(())
}
