//! The host: whether it takes on anything new.

use tarn_model::gpus::Drain;

use crate::{Result, Tx};

/// The one host that there is.
const HOST: &str = "host";

/// Since when and why the host takes on nothing new; `None` while it does.
pub fn drain(tx: &mut Tx<'_>) -> Result<Option<Drain>> {
    let row = tx.query_one("select reason, since_us from host_drains where host = $1", &[HOST.into()])?;
    row.map(|mut row| Ok(Drain { reason: row.maybe_text()?, since: row.time()? })).transpose()
}

/// Writes down that it takes on nothing new, or again does.
pub fn set_drain(tx: &mut Tx<'_>, drain: Option<&Drain>) -> Result<()> {
    tx.execute("delete from host_drains where host = $1", &[HOST.into()])?;
    if let Some(drain) = drain {
        let sql = "insert into host_drains (host, reason, since_us) values ($1, $2, $3)";
        tx.execute(sql, &[HOST.into(), drain.reason.as_deref().into(), drain.since.into()])?;
    }
    Ok(())
}
