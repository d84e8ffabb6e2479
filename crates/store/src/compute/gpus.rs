//! GPUs as they were last observed: what they are, their health, and whether they are offered.

use std::collections::BTreeMap;

use tarn_model::capacity::Gpu;
use tarn_model::gpus::{Drain, Facts, GpuRecord, Health};

use crate::db::{Row, params};
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
    let drain_reason = known.drain.as_ref().and_then(|drain| drain.reason.as_deref());
    let drained = known.drain.as_ref().map(|drain| drain.since);
    tx.run(
        sql,
        &params!(known: gpu.id, gpu.model, gpu.simulated, facts.memory_bytes, facts.driver_version,
            facts.cuda_version, facts.bus_id, facts.parent, health.name(), health.reason(), health.since(), cleared;
            drain_reason, drained, known.withheld()),
    )
}

/// Returns the GPU with this id.
pub fn get(tx: &mut Tx<'_>, id: &str) -> Result<Option<GpuRecord>> {
    tx.row(select!("where id = $1"), &params![id], read_gpu)
}

/// Returns every GPU that was ever observed, by id.
pub fn all(tx: &mut Tx<'_>) -> Result<BTreeMap<String, GpuRecord>> {
    let known = tx.rows(select!("order by id"), &[], read_gpu)?;
    Ok(known.into_iter().map(|known| (known.gpu.id.clone(), known)).collect())
}

/// Returns the GPUs that are withheld, with the reason.
pub fn withheld(tx: &mut Tx<'_>) -> Result<BTreeMap<String, String>> {
    let sql = "select id, withheld from gpus where withheld is not null";
    Ok(tx.rows(sql, &[], |row| Ok((row.text()?, row.text()?)))?.into_iter().collect())
}

/// Returns every slice with the GPU that it belongs to.
pub fn slices(tx: &mut Tx<'_>) -> Result<Vec<(String, String)>> {
    let sql = "select id, parent from gpus where parent is not null order by id";
    tx.rows(sql, &[], |row| Ok((row.text()?, row.text()?)))
}

/// Removes a GPU together with its drain.
pub fn forget(tx: &mut Tx<'_>, id: &str) -> Result<()> {
    tx.run("delete from gpus where id = $1", &params![id])
}

fn read_gpu(row: &mut Row) -> Result<GpuRecord> {
    Ok(GpuRecord {
        gpu: Gpu { id: row.text()?, model: row.text()?, simulated: row.flag()? },
        facts: Facts {
            memory_bytes: row.count()?,
            driver_version: row.maybe_text()?,
            cuda_version: row.maybe_text()?,
            bus_id: row.maybe_text()?,
            parent: row.maybe_text()?,
        },
        health: read_health(row)?,
        cleared: row.maybe_time()?,
        drain: {
            let reason = row.maybe_text()?;
            row.maybe_time()?.map(|since| Drain { reason, since })
        },
    })
}

fn read_health(row: &mut Row) -> Result<Health> {
    let (name, reason) = (row.text()?, row.maybe_text()?.unwrap_or_default());
    let since = row.maybe_time()?.unwrap_or_default();
    match name.as_str() {
        "GOOD" => Ok(Health::Good),
        "BAD" => Ok(Health::Bad { reason, since }),
        "RECOVERING" => Ok(Health::Recovering { reason, since }),
        "FATAL" => Ok(Health::Fatal { reason, since }),
        other => Err(Error::Corrupt(format!("a GPU in the health {other:?}"))),
    }
}
