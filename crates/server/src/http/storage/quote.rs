//! GET /storage/quote

use tarn_api::clusters::QuoteResponse;
use tarn_control::operations::storage;
use tarn_model::storage::MAX_SIZE_GB;
use utoipa::IntoParams;

use crate::http::input::call::ReadCall;
use crate::http::input::query::{Fields, FromQuery, Params};
use crate::http::output::response::{EndpointResult, JsonResponse};

/// The parameters of a quote.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SizeQuery {
    /// Size in GB.
    #[param(minimum = 1, maximum = 1000000)]
    size_gb: u64,
}

impl FromQuery for SizeQuery {
    fn from_query(fields: &mut Fields) -> Self {
        let size_gb = fields.required_number("size_gb", 1..=MAX_SIZE_GB.cast_signed());
        SizeQuery { size_gb: size_gb.cast_unsigned() }
    }
}

/// Price of a storage volume
///
/// What a volume of this size costs per hour.
#[utoipa::path(
    get,
    path = "/storage/quote",
    operation_id = "storage_quote",
    params(SizeQuery),
    responses(
        (status = 200, description = "The price", body = QuoteResponse),
        (status = 400, description = "Invalid size"),
    ),
)]
pub(crate) async fn quote_volume(
    call: ReadCall,
    Params(SizeQuery { size_gb }): Params<SizeQuery>,
) -> EndpointResult<QuoteResponse> {
    let rate = storage::quote(&call.control, size_gb)?;
    let message = format!("{size_gb} GB of storage cost {rate} per hour.");
    Ok(JsonResponse::ok(QuoteResponse { hourly_rate: rate.as_dollars(), message }))
}
