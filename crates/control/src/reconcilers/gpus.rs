//! Observes the GPUs and records which of them are offered.
//!
//! Only differences are written. A recorded GPU that was not seen counts as installed and unhealthy. An instance that
//! holds an unhealthy GPU keeps it: its owner is informed, and after its release the GPU is not assigned again.

use std::time::Duration;

use tarn_model::events::{Event, GpuEvent};
use tarn_model::gpus::{GpuObservation, GpuRecord, Health, ObservedGpu, Unseen};
use tarn_store::{Tx, clusters, events, gpus, instances, line};

use crate::{Control, Result};

/// Observes all GPUs once. A look that fails counts as one that saw nothing.
pub async fn tick(control: &Control) -> Result<Duration> {
    let (every, quiet) = (control.settings().gpus_every, control.settings().gpu_recovery);
    let look = control.driver().gpus().await.unwrap_or_else(|error| {
        tracing::warn!(%error, "the GPUs could not be observed: none is offered until they can be");
        GpuObservation::default()
    });
    let listed = control.inventory();
    let is_listed = move |id: &str| listed.gpus.iter().any(|gpu| gpu.id == id);
    let read = |tx: &mut Tx<'_>| -> Result<(Unseen, bool)> {
        let unseen = find_unseen(tx, &look, &is_listed)?;
        let known = gpus::all(tx)?;
        let is_news = look.seen.iter().chain(&unseen.missed).any(|seen| {
            let before = known.get(&seen.gpu.id);
            before != Some(&after_look(before.cloned(), seen, tx, quiet))
        });
        let is_news = is_news || !unseen.gone.is_empty();
        Ok((unseen, is_news))
    };
    let (mut unseen_now, is_news) = control.store().read(read).await?;
    if is_news {
        let look = look.clone();
        let write = control.store().write(move |tx| save_changes(tx, &look, &is_listed, quiet));
        unseen_now = write.await?;
    }
    look.seen.iter().chain(&unseen_now.missed).for_each(set_gauges);
    // The health of a GPU, and which GPU it is a slice of, must be recorded before it is assigned: so the host view
    // comes after the write.
    let are_others = control.host_view().record_look(&look.seen, &unseen_now.missed, control.prices());
    if are_others {
        control.store().write(|tx| -> Result<()> { Ok(line::wake(tx)?) }).await?;
    }
    if is_news || are_others {
        control.memory.due.notify_one();
    }
    Ok(every)
}

fn find_unseen(tx: &mut Tx<'_>, look: &GpuObservation, is_listed: &impl Fn(&str) -> bool) -> Result<Unseen> {
    let (known, owners) = (gpus::all(tx)?, instances::gpu_owners(tx)?);
    Ok(look.unseen(&known, |id| owners.contains_key(id), is_listed))
}

/// Saves everything that has changed, wakes the queue if a GPU is newly offered, and returns which GPUs were not seen.
fn save_changes(
    tx: &mut Tx<'_>,
    look: &GpuObservation,
    is_listed: &impl Fn(&str) -> bool,
    quiet: Duration,
) -> Result<Unseen> {
    let unseen = find_unseen(tx, look, is_listed)?;
    let mut is_more = false;
    for seen in look.seen.iter().chain(&unseen.missed) {
        is_more |= save_change(tx, seen, quiet)?;
    }
    for id in &unseen.gone {
        gpus::forget(tx, id)?;
    }
    if is_more {
        line::wake(tx)?;
    }
    Ok(unseen)
}

fn after_look(before: Option<GpuRecord>, seen: &ObservedGpu, tx: &Tx<'_>, quiet: Duration) -> GpuRecord {
    before.unwrap_or_else(|| GpuRecord::new(seen)).seen(seen, tx.now(), quiet)
}

/// Saves what has changed about one GPU; returns whether it is newly offered.
fn save_change(tx: &mut Tx<'_>, seen: &ObservedGpu, quiet: Duration) -> Result<bool> {
    let before = gpus::get(tx, &seen.gpu.id)?;
    let now = after_look(before.clone(), seen, tx, quiet);
    if before.as_ref() == Some(&now) {
        return Ok(false);
    }
    gpus::save(tx, &now)?;
    let was = before.as_ref().map_or("GOOD", |before| before.health.name());
    if was != now.health.name() {
        record_health_change(tx, &now)?;
    }
    Ok(before.is_some_and(|before| before.withheld().is_some()) && now.withheld().is_none())
}

/// Records the event for the owner of the instance that holds the GPU, or for the engine.
fn record_health_change(tx: &mut Tx<'_>, known: &GpuRecord) -> Result<()> {
    let id = &known.gpu.id;
    let owner = instances::gpu_owners(tx)?.remove(id);
    let cluster = owner.as_ref().map(|(_, cluster)| clusters::get(tx, cluster)).transpose()?.flatten();
    let scope = cluster.map_or(events::ENGINE.to_owned(), |cluster| cluster.owner.scope().to_owned());
    let (instance, cluster) = owner.unzip();
    let reason = known.health.reason().map(str::to_owned);
    let event = match &known.health {
        Health::Good => {
            tracing::info!(gpu = id, "a GPU is healthy again");
            GpuEvent::Good { reason, instance, cluster }
        }
        Health::Bad { .. } => GpuEvent::Bad { reason, instance, cluster },
        Health::Fatal { .. } => GpuEvent::Fatal { reason, instance, cluster },
        // Its recovery is recorded when it is complete.
        Health::Recovering { .. } => return Ok(()),
    };
    if let Some(reason) = known.health.reason() {
        tracing::warn!(gpu = id, reason, "a GPU is unhealthy and is not offered");
    }
    Ok(tx.record(&scope, Event::Gpu(id.clone(), event))?)
}

/// Sets the metrics of one GPU.
fn set_gauges(seen: &ObservedGpu) {
    let labels = || {
        [("gpu", seen.gpu.id.clone()), ("model", seen.gpu.model.clone()), ("simulated", seen.gpu.simulated.to_string())]
    };
    let figures = &seen.figures;
    let gauges = [
        ("tarn_gpu_faults", Some(seen.faults.len() as f64)),
        ("tarn_gpu_temperature_celsius", figures.temperature_celsius.map(f64::from)),
        ("tarn_gpu_power_watts", figures.power_milliwatts.map(|milliwatts| f64::from(milliwatts) / 1000.0)),
        ("tarn_gpu_utilisation_ratio", figures.utilisation_percent.map(|percent| f64::from(percent) / 100.0)),
        ("tarn_gpu_memory_used_bytes", figures.memory_used_bytes.map(|bytes| bytes as f64)),
        ("tarn_gpu_memory_errors_uncorrected", figures.uncorrected_errors.map(|errors| errors as f64)),
    ];
    for (name, value) in gauges {
        if let Some(value) = value {
            metrics::gauge!(name, &labels()).set(value);
        }
    }
}
