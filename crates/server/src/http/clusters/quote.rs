//! GET /cluster/quote

use tarn_api::clusters::QuoteResponse;
use tarn_control::operations::clusters;
use utoipa::IntoParams;

use crate::http::input::call::ReadCall;
use crate::http::input::query::{Fields, FromQuery, Params};
use crate::http::output::response::{EndpointResult, JsonResponse};

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
