//! GPUs as they were last observed: what they are, their health, and whether they are offered.

use std::collections::BTreeMap;

use tarn_model::Time;
use tarn_model::capacity::Gpu;
use tarn_model::gpus::{Drain, Facts, GpuRecord, Health};

use crate::db::Row;
use crate::{Error, Result, Tx};

/// Every query of this file reads the same columns, in the order of [`read_gpu`].
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select id, model, simulated, memory_bytes, driver_version, cuda_version, bus_id, parent, health, reason, \
             since_us, cleared_us, drain_reason, drained_us from gpus ",
            $rest
        )
    };
}

/// Saves everything known about a GPU.
pub fn save(tx: &mut Tx<'_>, known: &GpuRecord) -> Result<()> {
    let sql = "insert into gpus (id, model, simulated, memory_bytes, driver_version, cuda_version, bus_id, parent, health, \
               reason, since_us, cleared_us, drain_reason, drained_us, withheld) \
               values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) \
               on conflict (id) do update set model = excluded.model, simulated = excluded.simulated, \
               memory_bytes = excluded.memory_bytes, driver_version = excluded.driver_version, \
               cuda_version = excluded.cuda_version, bus_id = excluded.bus_id, parent = excluded.parent, \
               health = excluded.health, reason = excluded.reason, since_us = excluded.since_us, \
               cleared_us = excluded.cleared_us, drain_reason = excluded.drain_reason, drained_us = excluded.drained_us, \
               withheld = excluded.withheld";
    let GpuRecord { gpu, facts, health, cleared, drain } = known;
    let withheld = known.withheld();
    tx.execute(
        sql,
        &[
            (&gpu.id).into(),
            (&gpu.model).into(),
            gpu.simulated.into(),
            facts.memory_bytes.into(),
            facts.driver_version.as_deref().into(),
            facts.cuda_version.as_deref().into(),
            facts.bus_id.as_deref().into(),
            facts.parent.as_deref().into(),
            health.name().into(),
            health.reason().into(),
            health.since().into(),
            (*cleared).into(),
            drain.as_ref().and_then(|drain| drain.reason.as_deref()).into(),
            drain.as_ref().map(|drain| drain.since).into(),
            withheld.as_deref().into(),
        ],
    )?;
    Ok(())
}

/// Returns the GPU with this id.
pub fn get(tx: &mut Tx<'_>, id: &str) -> Result<Option<GpuRecord>> {
    tx.query_one(select!("where id = $1"), &[id.into()])?.map(read_gpu).transpose()
}

/// Returns every GPU that was ever observed, by id.
pub fn all(tx: &mut Tx<'_>) -> Result<BTreeMap<String, GpuRecord>> {
    let rows = tx.query(select!("order by id"), &[])?;
    rows.into_iter().map(|row| read_gpu(row).map(|known| (known.gpu.id.clone(), known))).collect()
}

/// Returns the GPUs that are withheld, with the reason.
pub fn withheld(tx: &mut Tx<'_>) -> Result<BTreeMap<String, String>> {
    let rows = tx.query("select id, withheld from gpus where withheld is not null", &[])?;
    rows.into_iter().map(|mut row| Ok((row.text()?, row.text()?))).collect()
}

/// Returns every slice with the GPU that it belongs to.
pub fn slices(tx: &mut Tx<'_>) -> Result<Vec<(String, String)>> {
    let rows = tx.query("select id, parent from gpus where parent is not null order by id", &[])?;
    rows.into_iter().map(|mut row| Ok((row.text()?, row.text()?))).collect()
}

/// Removes a GPU together with its drain.
pub fn forget(tx: &mut Tx<'_>, id: &str) -> Result<()> {
    tx.execute("delete from gpus where id = $1", &[id.into()])?;
    Ok(())
}

fn read_gpu(mut row: Row) -> Result<GpuRecord> {
    Ok(GpuRecord {
        gpu: Gpu { id: row.text()?, model: row.text()?, simulated: row.flag()? },
        facts: Facts {
            memory_bytes: row.count()?,
            driver_version: row.maybe_text()?,
            cuda_version: row.maybe_text()?,
            bus_id: row.maybe_text()?,
            parent: row.maybe_text()?,
        },
        health: read_health(&mut row)?,
        cleared: row.maybe_integer()?.map(Time::from_micros),
        drain: {
            let reason = row.maybe_text()?;
            row.maybe_integer()?.map(|since| Drain { reason, since: Time::from_micros(since) })
        },
    })
}

fn read_health(row: &mut Row) -> Result<Health> {
    let (name, reason) = (row.text()?, row.maybe_text()?.unwrap_or_default());
    let since = row.maybe_integer()?.map(Time::from_micros).unwrap_or_default();
    match name.as_str() {
        "GOOD" => Ok(Health::Good),
        "BAD" => Ok(Health::Bad { reason, since }),
        "RECOVERING" => Ok(Health::Recovering { reason, since }),
        "FATAL" => Ok(Health::Fatal { reason, since }),
        other => Err(Error::Corrupt(format!("a GPU in the health {other:?}"))),
    }
}
