//! GET /cluster/types

use tarn_api::clusters::{InstanceTypeInfo, InstanceTypeListResponse};
use tarn_control::operations::clusters;
use tarn_model::catalogue::InstanceType;

use crate::http::input::call::ReadCall;
use crate::http::output::response::{EndpointResult, JsonResponse};
use crate::http::output::table::{Dash, Table};

/// List instance types
///
/// Every instance type of this engine, with its shape, its price, and how many instances fit now.
#[utoipa::path(
    get,
    path = "/cluster/types",
    operation_id = "cluster_types",
    responses((status = 200, description = "The types", body = InstanceTypeListResponse)),
)]
pub(crate) async fn list_instance_types(call: ReadCall) -> EndpointResult<InstanceTypeListResponse> {
    let types = clusters::types(&call.control).await?;
    let message = instance_type_table(&types);
    Ok(JsonResponse::ok(InstanceTypeListResponse { types: types.iter().map(instance_type_info).collect(), message }))
}

fn instance_type_info((kind, available): &(InstanceType, u64)) -> InstanceTypeInfo {
    InstanceTypeInfo {
        name: kind.name.clone(),
        cpus: cpu_count(kind),
        memory_bytes: kind.shape.memory_bytes,
        gpus: kind.shape.gpus,
        gpu_model: kind.shape.gpu_model.clone(),
        hourly_rate: kind.hourly.as_dollars(),
        simulated: kind.simulated,
        available: *available,
    }
}

fn instance_type_table(types: &[(InstanceType, u64)]) -> String {
    let mut table = Table::new(["TYPE", "CPUS", "MEMORY", "GPUS", "MODEL", "FIT NOW", "PER HOUR"], types.len());
    for (kind, available) in types {
        let memory = format!("{:.1} GiB", kind.shape.memory_bytes as f64 / f64::from(1 << 30));
        let note = if kind.simulated { " (simulated)" } else { "" };
        let model = Dash(kind.shape.gpu_model.as_ref().map(|model| format!("{model}{note}")));
        table.row([&kind.name, &cpu_count(kind), &memory, &kind.shape.gpus, &model, available, &kind.hourly]);
    }
    table.render()
}

fn cpu_count(kind: &InstanceType) -> f64 {
    kind.shape.cpu_milli as f64 / 1e3
}
