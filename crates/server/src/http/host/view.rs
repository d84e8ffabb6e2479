//! How the host and its GPUs look: as JSON, as rows of a table, as a block of text.

use tarn_api::host::{GpuHealth, GpuInfo, HostInfo, InstanceGpuInfo};
use tarn_control::operations::host::{GpuSummary, HostSummary};
use tarn_model::gpus::{Health, Known};

use crate::http::table::Cell::Text;
use crate::http::table::{Dash, Table, block};

const GIB: f64 = (1u64 << 30) as f64;

/// A GPU as JSON.
pub(crate) fn gpu(view: GpuSummary) -> GpuInfo {
    let GpuSummary { known, figures, owner } = view;
    let (instance, cluster) = owner.unzip();
    GpuInfo {
        health: health(&known.health),
        reason: known.health.reason().map(str::to_owned),
        since: known.health.since().map(|since| since.to_string()),
        drained: known.drain.is_some(),
        withheld: known.withheld(),
        id: known.gpu.id,
        model: known.gpu.model,
        simulated: known.gpu.simulated,
        instance_id: instance.map(Into::into),
        cluster_id: cluster.map(Into::into),
        parent: known.facts.parent,
        bus_id: known.facts.bus_id,
        driver_version: known.facts.driver_version,
        cuda_version: known.facts.cuda_version,
        memory_bytes: Some(known.facts.memory_bytes).filter(|bytes| *bytes > 0),
        memory_used_bytes: figures.memory_used_bytes,
        temperature_celsius: figures.temperature_celsius,
        power_watts: figures.power_milliwatts.map(|milliwatts| f64::from(milliwatts) / 1000.0),
        utilisation_percent: figures.utilisation_percent,
        uncorrected_errors: figures.uncorrected_errors,
        uncorrected_errors_ever: figures.uncorrected_errors_ever,
    }
}

/// A GPU as the owner of the instance sees it that has it.
pub(crate) fn of_instance(known: &Known) -> InstanceGpuInfo {
    InstanceGpuInfo {
        id: known.gpu.id.clone(),
        model: known.gpu.model.clone(),
        simulated: known.gpu.simulated,
        health: health(&known.health),
        reason: known.health.reason().map(str::to_owned),
        driver_version: known.facts.driver_version.clone(),
        memory_gb: Some(known.facts.memory_bytes >> 30).filter(|gib| *gib > 0),
    }
}

/// The host as JSON.
pub(crate) fn host(view: HostSummary) -> HostInfo {
    HostInfo {
        drained: view.drain.is_some(),
        drained_since: view.drain.as_ref().map(|drain| drain.since.to_string()),
        drain_reason: view.drain.and_then(|drain| drain.reason),
        cpus: view.cpu_milli as f64 / 1e3,
        cpus_held: view.held.cpu_milli as f64 / 1e3,
        memory_bytes: view.memory_bytes,
        memory_held_bytes: view.held.memory_bytes,
        storage_bytes: view.storage_bytes,
        storage_promised_bytes: view.storage_promised_bytes,
        gpus: view.gpus.into_iter().map(gpu).collect(),
    }
}

/// Everything about the host.
pub(crate) fn text(view: &HostSummary) -> String {
    let state = match &view.drain {
        Some(drain) => format!("takes on nothing new: {drain}"),
        None => "takes on new clusters".to_owned(),
    };
    let cpus = format!("{} of {} held", view.held.cpu_milli as f64 / 1e3, view.cpu_milli as f64 / 1e3);
    let memory =
        format!("{:.1} of {:.1} GiB held", view.held.memory_bytes as f64 / GIB, view.memory_bytes as f64 / GIB);
    let promised = view.storage_promised_bytes / 1_000_000_000;
    let storage = match view.storage_bytes {
        Some(bytes) => format!("{promised} of {} GB promised", bytes / 1_000_000_000),
        None => format!("{promised} GB promised; the disk does not answer"),
    };
    let lines =
        [("State", Text(&state)), ("CPUs", Text(&cpus)), ("Memory", Text(&memory)), ("Storage", Text(&storage))];
    match view.gpus.is_empty() {
        true => format!("{}\n\nIt has no GPUs.", block(&lines)),
        false => format!("{}\n\n{}", block(&lines), table(&view.gpus)),
    }
}

/// A row for each GPU.
pub(crate) fn table(views: &[GpuSummary]) -> String {
    if views.is_empty() {
        return "The host has no GPUs.".to_owned();
    }
    let mut table = Table::new(["GPU", "MODEL", "HEALTH", "OWNER", "DRAINED", "NOT OFFERED BECAUSE"], views.len());
    for GpuSummary { known, owner, .. } in views {
        let note = if known.gpu.simulated { " (simulated)" } else { "" };
        let model = format!("{}{note}", known.gpu.model);
        let owner = Dash(owner.as_ref().map(|(instance, _)| instance));
        let drained = if known.drain.is_some() { "yes" } else { "no" };
        table.row([&known.gpu.id, &model, &known.health.name(), &owner, &drained, &Dash(known.withheld())]);
    }
    table.render()
}

fn health(health: &Health) -> GpuHealth {
    match health {
        Health::Good => GpuHealth::Good,
        Health::Bad { .. } => GpuHealth::Bad,
        Health::Recovering { .. } => GpuHealth::Recovering,
        Health::Fatal { .. } => GpuHealth::Fatal,
    }
}
