//! What administrators of the engine see and change of the host and its GPUs.

use tarn_model::Time;
use tarn_model::capacity::HeldCapacity;
use tarn_model::events::{Event, GpuClearance, GpuEvent, HostEvent};
use tarn_model::gpus::{Drain, Figures, GpuRecord, ObservedGpu};
use tarn_model::ids::{ClusterId, InstanceId};
use tarn_store::{Tx, events, gpus, host, instances, line, storage};

use crate::{Caller, Control, Error, Result};

/// The host as administrators see it.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSummary {
    /// Present while the host accepts no new clusters.
    pub drain: Option<Drain>,
    /// Thousandths of CPU cores, with the configured overcommit.
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// What instances hold of CPU and memory.
    pub held: HeldCapacity,
    /// The size of the pool of volumes, if the driver can report it.
    pub storage_bytes: Option<u64>,
    /// How much of the pool is promised to volumes.
    pub storage_promised_bytes: u64,
    pub gpus: Vec<GpuSummary>,
}

/// A GPU as administrators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuSummary {
    /// What is recorded about it.
    pub known: GpuRecord,
    /// Its last measurements.
    pub figures: Figures,
    /// The instance that holds it, and the cluster of that instance.
    pub owner: Option<(InstanceId, ClusterId)>,
}

/// Returns the host with its GPUs.
pub async fn info(control: &Control, caller: &Caller) -> Result<HostSummary> {
    caller.must_administer()?;
    let gpus = list_gpus(control, caller).await?;
    let storage_bytes = control.driver().pool().await.ok();
    let inventory = control.inventory();
    let read = control.store().read(|tx| -> Result<_> {
        Ok((host::drain(tx)?, instances::held(tx)?, storage::promised_gb(tx)?.saturating_mul(1_000_000_000)))
    });
    let (drain, held, storage_promised_bytes) = read.await?;
    let (cpu_milli, memory_bytes) = (inventory.cpu_milli, inventory.memory_bytes);
    Ok(HostSummary { drain, cpu_milli, memory_bytes, held, storage_bytes, storage_promised_bytes, gpus })
}

/// Lists the GPUs of the host.
pub async fn list_gpus(control: &Control, caller: &Caller) -> Result<Vec<GpuSummary>> {
    caller.must_administer()?;
    let (inventory, figures) = (control.inventory(), control.host_view().figures());
    let read = control.store().read(|tx| -> Result<Vec<GpuSummary>> {
        let (mut known, mut owners) = (gpus::all(tx)?, instances::gpu_owners(tx)?);
        let view = |gpu: &tarn_model::capacity::Gpu| GpuSummary {
            known: known.remove(&gpu.id).unwrap_or_else(|| GpuRecord::new(&ObservedGpu::plain(gpu.clone()))),
            figures: figures.get(&gpu.id).cloned().unwrap_or_default(),
            owner: owners.remove(&gpu.id),
        };
        Ok(inventory.gpus.iter().map(view).collect())
    });
    read.await
}

/// Drains the host: it accepts no new clusters, and running ones continue. `None` ends the drain.
pub async fn drain(control: &Control, caller: &Caller, drained: Option<DrainReason>) -> Result<String> {
    caller.must_administer()?;
    drained.as_ref().map(DrainReason::check_reason).transpose()?;
    let write = control.write(caller, move |tx| {
        let now = tx.now();
        let before = host::drain(tx)?;
        let drain = drained.clone().map(|reason| reason.or_reason_of(before).into_drain(now));
        host::set_drain(tx, drain.as_ref())?;
        let event = match &drain {
            Some(drain) => HostEvent::Drained { reason: drain.reason.clone() },
            None => HostEvent::Undrained { reason: None },
        };
        tx.record(events::ENGINE, Event::Host("host".to_owned(), event))?;
        match drain {
            Some(_) => Ok("The host accepts no new clusters; running clusters continue.".to_owned()),
            None => {
                line::wake(tx)?;
                Ok("The host accepts new clusters again.".to_owned())
            }
        }
    });
    write.await
}

/// Drains a GPU: it is not assigned again, and the instance that holds it keeps it. `None` offers it again.
pub async fn drain_gpu(control: &Control, caller: &Caller, gpu: &str, drained: Option<DrainReason>) -> Result<String> {
    drained.as_ref().map(DrainReason::check_reason).transpose()?;
    let event =
        if drained.is_some() { |reason| GpuEvent::Drained { reason } } else { |reason| GpuEvent::Undrained { reason } };
    change_gpu(control, caller, gpu, event, move |tx, known| {
        let now = tx.now();
        let drain = drained.clone().map(|reason| reason.or_reason_of(known.drain.clone()).into_drain(now));
        Ok(GpuRecord { drain, ..known })
    })
    .await
}

/// Clears the fatal fault of a GPU: it is offered when no fault is seen for a while. A lost GPU is removed instead,
/// unless an instance holds it.
pub async fn clear_gpu(control: &Control, caller: &Caller, gpu: &str) -> Result<String> {
    caller.must_administer()?;
    if control.host_view().is_gpu_lost(gpu)
        && let Some(said) = forget_lost_gpu(control, caller, gpu).await?
    {
        return Ok(said);
    }
    let cleared = |reason| GpuEvent::Cleared { clearance: GpuClearance::Kept { reason } };
    change_gpu(control, caller, gpu, cleared, |tx, known| {
        Ok(GpuRecord { health: known.health.clone().clear(tx.now())?, cleared: Some(tx.now()), ..known })
    })
    .await
}

async fn forget_lost_gpu(control: &Control, caller: &Caller, gpu: &str) -> Result<Option<String>> {
    let id = gpu.to_owned();
    let write = control.write(caller, move |tx| {
        if instances::gpu_owners(tx)?.contains_key(&id) {
            return Ok(None);
        }
        gpus::forget(tx, &id)?;
        let cleared = GpuEvent::Cleared { clearance: GpuClearance::Forgotten { forgotten: true } };
        tx.record(events::ENGINE, Event::Gpu(id.clone(), cleared))?;
        Ok(Some(format!("GPU {id} is missing and was removed; if it comes back, it counts as a new GPU.")))
    });
    let said = write.await?;
    if said.is_some() {
        control.host_view().remove_lost_gpu(gpu, control.prices());
    }
    Ok(said)
}

/// Why something is drained, if the administrator gives a reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainReason(pub Option<String>);

impl DrainReason {
    /// A second drain without a reason keeps the reason of the first.
    fn or_reason_of(self, before: Option<Drain>) -> DrainReason {
        DrainReason(self.0.or_else(|| before?.reason))
    }

    fn into_drain(self, since: Time) -> Drain {
        Drain { reason: self.0, since }
    }

    fn check_reason(&self) -> Result<()> {
        let is_wrong = |text: &String| text.chars().count() > 200 || text.chars().any(char::is_control);
        if self.0.as_ref().is_some_and(is_wrong) {
            Err(Error::invalid(
                "invalid_reason",
                "the reason must have at most 200 characters and no control characters",
            ))
        } else {
            Ok(())
        }
    }
}

async fn change_gpu(
    control: &Control,
    caller: &Caller,
    gpu: &str,
    event: fn(Option<String>) -> GpuEvent,
    change: impl Fn(&mut Tx<'_>, GpuRecord) -> Result<GpuRecord> + Send + 'static,
) -> Result<String> {
    caller.must_administer()?;
    let there = control.inventory().gpus.iter().find(|known| known.id == gpu).cloned();
    let there = there.ok_or_else(|| Error::not_found("GPU", gpu))?;
    let write = control.write(caller, move |tx| {
        let known = gpus::get(tx, &there.id)?.unwrap_or_else(|| GpuRecord::new(&ObservedGpu::plain(there.clone())));
        let known = change(tx, known)?;
        gpus::save(tx, &known)?;
        let reason = known.drain.as_ref().and_then(|drain| drain.reason.clone());
        tx.record(events::ENGINE, Event::Gpu(there.id.clone(), event(reason)))?;
        let owner = instances::gpu_owners(tx)?.remove(&there.id);
        match (known.withheld(), owner) {
            (Some(why), None) => Ok(format!("GPU {} is not offered: {why}.", there.id)),
            (Some(why), Some((instance, _))) => {
                Ok(format!("GPU {} is not offered: {why}. Instance {instance} keeps it.", there.id))
            }
            (None, None) => {
                line::wake(tx)?;
                Ok(format!("GPU {} is offered.", there.id))
            }
            (None, Some((instance, _))) => Ok(format!(
                "GPU {} will be offered again when instance {instance}, which holds it, is destroyed.",
                there.id
            )),
        }
    });
    write.await
}
