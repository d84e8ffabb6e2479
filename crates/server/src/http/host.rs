//! The endpoints for the host and its GPUs, for administrators of the engine. `control` decides whether the caller is
//! one.

use tarn_api::health::MessageResponse;
use tarn_api::host::{DrainRequest, GpuHealth, GpuInfo, GpuListResponse, HostInfo, HostInfoResponse, InstanceGpuInfo};
use tarn_control::operations::host::{self, DrainReason, GpuSummary, HostSummary};
use tarn_model::gpus::{GpuRecord, Health};

use crate::http::input::body::Body;
use crate::http::input::call::{Call, ChangeCall, ReadCall};
use crate::http::input::id::Id;
use crate::http::output::response::{EndpointResult, JsonResponse};
use crate::http::output::table::Cell::Text;
use crate::http::output::table::{Dash, Table, render_block};

const GIB: f64 = (1u64 << 30) as f64;

/// Show the host
///
/// The capacity of the host, what instances use of it, whether it is drained, and its GPUs.
#[utoipa::path(
    get,
    path = "/admin/host/info",
    operation_id = "admin_host_info",
    responses((status = 200, description = "The host", body = HostInfoResponse)),
)]
pub(crate) async fn get_host(call: ReadCall) -> EndpointResult<HostInfoResponse> {
    let host = host::info(&call.control, &call.caller).await?;
    let message = host_text(&host);
    Ok(JsonResponse::ok(HostInfoResponse { host: host_info(host), message }))
}

impl Body for DrainRequest {}

/// Drain the host
///
/// No new claim is placed; running clusters continue, and claims wait in the capacity queue.
#[utoipa::path(
    post,
    path = "/admin/host/drain",
    operation_id = "admin_host_drain",
    request_body = DrainRequest,
    responses(
        (status = 200, description = "The host is drained", body = MessageResponse),
        (status = 400, description = "Invalid reason"),
    ),
)]
pub(crate) async fn drain_host(call: Call<DrainRequest>) -> EndpointResult<MessageResponse> {
    let message = host::drain(&call.control, &call.caller, Some(DrainReason(call.body.reason))).await?;
    Ok(JsonResponse::ok(MessageResponse { message: Some(message) }))
}

/// Undrain the host
///
/// New clusters are placed again, the waiting claims first.
#[utoipa::path(
    post,
    path = "/admin/host/undrain",
    operation_id = "admin_host_undrain",
    responses((status = 200, description = "The host takes on new clusters", body = MessageResponse)),
)]
pub(crate) async fn undrain_host(call: ChangeCall) -> EndpointResult<MessageResponse> {
    let message = host::drain(&call.control, &call.caller, None).await?;
    Ok(JsonResponse::ok(MessageResponse { message: Some(message) }))
}

/// List GPUs
///
/// Every GPU of the host: its health, whether it is offered, its owner, and its measurements.
#[utoipa::path(
    get,
    path = "/admin/gpu/list",
    operation_id = "admin_gpu_list",
    responses((status = 200, description = "The GPUs", body = GpuListResponse)),
)]
pub(crate) async fn list_gpus(call: ReadCall) -> EndpointResult<GpuListResponse> {
    let gpus = host::list_gpus(&call.control, &call.caller).await?;
    let message = gpu_table(&gpus);
    Ok(JsonResponse::ok(GpuListResponse { gpus: gpus.into_iter().map(gpu_info).collect(), message }))
}

/// Drain a GPU
///
/// The GPU is no longer offered; its owner keeps it.
#[utoipa::path(
    post,
    path = "/admin/gpu/drain/{gpu_id}",
    operation_id = "admin_gpu_drain",
    params(("gpu_id" = String, Path)),
    request_body = DrainRequest,
    responses(
        (status = 200, description = "The GPU is drained", body = MessageResponse),
        (status = 400, description = "Invalid reason"),
        (status = 404, description = "GPU not found"),
    ),
)]
pub(crate) async fn drain_gpu(Id(gpu): Id, call: Call<DrainRequest>) -> EndpointResult<MessageResponse> {
    let message = host::drain_gpu(&call.control, &call.caller, &gpu, Some(DrainReason(call.body.reason))).await?;
    Ok(JsonResponse::ok(MessageResponse { message: Some(message) }))
}

/// Undrain a GPU
///
/// The GPU is offered again, if it is healthy.
#[utoipa::path(
    post,
    path = "/admin/gpu/undrain/{gpu_id}",
    operation_id = "admin_gpu_undrain",
    params(("gpu_id" = String, Path)),
    responses(
        (status = 200, description = "The GPU is not drained", body = MessageResponse),
        (status = 404, description = "GPU not found"),
    ),
)]
pub(crate) async fn undrain_gpu(call: ChangeCall, Id(gpu): Id) -> EndpointResult<MessageResponse> {
    let message = host::drain_gpu(&call.control, &call.caller, &gpu, None).await?;
    Ok(JsonResponse::ok(MessageResponse { message: Some(message) }))
}

/// Clear a GPU
///
/// Clear a GPU that had a fatal fault, after a reset or a repair.
#[utoipa::path(
    post,
    path = "/admin/gpu/clear/{gpu_id}",
    operation_id = "admin_gpu_clear",
    params(("gpu_id" = String, Path)),
    responses(
        (status = 200, description = "The GPU is cleared", body = MessageResponse),
        (status = 404, description = "GPU not found"),
        (status = 409, description = "Nothing fatal was seen of it"),
    ),
)]
pub(crate) async fn clear_gpu(call: ChangeCall, Id(gpu): Id) -> EndpointResult<MessageResponse> {
    let message = host::clear_gpu(&call.control, &call.caller, &gpu).await?;
    Ok(JsonResponse::ok(MessageResponse { message: Some(message) }))
}

/// Returns a GPU as JSON.
pub(crate) fn gpu_info(view: GpuSummary) -> GpuInfo {
    let GpuSummary { known, figures, owner } = view;
    let (instance, cluster) = owner.unzip();
    GpuInfo {
        health: gpu_health(&known.health),
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

/// Returns a GPU as the owner of its instance sees it.
pub(crate) fn instance_gpu_info(known: &GpuRecord) -> InstanceGpuInfo {
    InstanceGpuInfo {
        id: known.gpu.id.clone(),
        model: known.gpu.model.clone(),
        simulated: known.gpu.simulated,
        health: gpu_health(&known.health),
        reason: known.health.reason().map(str::to_owned),
        driver_version: known.facts.driver_version.clone(),
        memory_gb: Some(known.facts.memory_bytes >> 30).filter(|gib| *gib > 0),
    }
}

/// Returns the host as JSON.
pub(crate) fn host_info(view: HostSummary) -> HostInfo {
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
        gpus: view.gpus.into_iter().map(gpu_info).collect(),
    }
}

/// Renders everything about the host.
pub(crate) fn host_text(view: &HostSummary) -> String {
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
        None => format!("{promised} GB promised; the disk cannot be read"),
    };
    let lines =
        [("State", Text(&state)), ("CPUs", Text(&cpus)), ("Memory", Text(&memory)), ("Storage", Text(&storage))];
    if view.gpus.is_empty() {
        format!("{}\n\nIt has no GPUs.", render_block(&lines))
    } else {
        format!("{}\n\n{}", render_block(&lines), gpu_table(&view.gpus))
    }
}

/// Renders a row for each GPU.
pub(crate) fn gpu_table(views: &[GpuSummary]) -> String {
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

fn gpu_health(health: &Health) -> GpuHealth {
    match health {
        Health::Good => GpuHealth::Good,
        Health::Bad { .. } => GpuHealth::Bad,
        Health::Recovering { .. } => GpuHealth::Recovering,
        Health::Fatal { .. } => GpuHealth::Fatal,
    }
}
