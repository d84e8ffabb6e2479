//! The endpoints that show volumes and prices.

use tarn_api::clusters::QuoteResponse;
use tarn_api::storage::{StorageInfoResponse, StorageListResponse};
use tarn_control::operations::storage;
use tarn_model::storage::MAX_SIZE_GB;
use utoipa::IntoParams;

use super::view;
use crate::http::input::call::ReadCall;
use crate::http::input::id::Id;
use crate::http::input::listing::ListQuery;
use crate::http::input::query::{Fields, FromQuery, Params};
use crate::http::output::response::{EndpointResult, JsonResponse};
use crate::http::output::table::append_next_page;

/// List storage volumes
///
/// The volumes that the caller created or, with include_org, all volumes of the organization, newest first.
#[utoipa::path(
    get,
    path = "/storage/list",
    operation_id = "storage_list",
    params(ListQuery),
    responses(
        (status = 200, description = "The volumes", body = StorageListResponse),
        (status = 400, description = "Invalid cursor"),
    ),
)]
pub(crate) async fn list_volumes(
    call: ReadCall,
    Params(listing): Params<ListQuery>,
) -> EndpointResult<StorageListResponse> {
    let page = storage::list(&call.control, &call.caller, listing.into()).await?;
    let mut message = match page.items.as_slice() {
        [] => "No storage volumes. Create one with `tp storage create 100`.".to_owned(),
        items => view::volume_table(items),
    };
    append_next_page(&mut message, page.next_cursor.as_deref());
    let volumes = page.items.into_iter().map(view::volume_info).collect();
    Ok(JsonResponse::ok(StorageListResponse { volumes, next_cursor: page.next_cursor, message }))
}

/// Storage volume details
///
/// Everything about one volume.
#[utoipa::path(
    get,
    path = "/storage/info/{storage_id}",
    operation_id = "storage_info",
    params(("storage_id" = String, Path)),
    responses(
        (status = 200, description = "The volume", body = StorageInfoResponse),
        (status = 400, description = "Invalid storage ID format"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Storage not found"),
    ),
)]
pub(crate) async fn get_volume(call: ReadCall, Id(volume): Id) -> EndpointResult<StorageInfoResponse> {
    let found = storage::info(&call.control, &call.caller, &volume).await?;
    let message = view::volume_text(&found);
    Ok(JsonResponse::ok(StorageInfoResponse { storage_info: view::volume_info(found), message }))
}

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
