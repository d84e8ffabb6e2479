//! The endpoints that show instance types and prices.

use tarn_api::clusters::{InstanceTypeInfo, InstanceTypeListResponse, QuoteResponse};
use tarn_control::operations::clusters;
use tarn_model::catalogue::InstanceType;
use utoipa::IntoParams;

use crate::http::input::call::ReadCall;
use crate::http::input::query::{Fields, FromQuery, Params};
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

/// The parameters of a quote.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct QuoteQuery {
    /// Type of the instances, for example 8xH100.
    instance_type: String,
    /// Number of nodes.
    #[param(minimum = 1, maximum = 1000, default = 1)]
    num_nodes: Option<u32>,
}

impl FromQuery for QuoteQuery {
    fn from_query(fields: &mut Fields) -> Self {
        let num_nodes = fields.number("num_nodes", 1..=1000);
        QuoteQuery {
            instance_type: fields.required_text("instance_type"),
            num_nodes: num_nodes.and_then(|nodes| u32::try_from(nodes).ok()),
        }
    }
}

/// Price of a cluster
///
/// What a cluster of this type and size costs per hour.
#[utoipa::path(
    get,
    path = "/cluster/quote",
    operation_id = "cluster_quote",
    params(QuoteQuery),
    responses(
        (status = 200, description = "The price", body = QuoteResponse),
        (status = 400, description = "Unknown instance type, or more than fits on the host"),
    ),
)]
pub(crate) async fn quote_cluster(call: ReadCall, Params(query): Params<QuoteQuery>) -> EndpointResult<QuoteResponse> {
    let rate = clusters::quote(&call.control, &query.instance_type, query.num_nodes)?;
    let (nodes, kind) = (query.num_nodes.unwrap_or(1), &query.instance_type);
    let simulated =
        clusters::catalogue(&call.control).types().iter().any(|known| known.name == *kind && known.simulated);
    let note = if simulated { " The GPUs are simulated." } else { "" };
    let message = format!("{nodes} x {kind} costs {rate} per hour.{note}");
    Ok(JsonResponse::ok(QuoteResponse { hourly_rate: rate.as_dollars(), message }))
}
