//! GET /storage/list

use tarn_api::storage::StorageListResponse;
use tarn_control::operations::storage;

use super::view;
use crate::http::input::call::ReadCall;
use crate::http::input::listing::ListQuery;
use crate::http::input::query::Params;
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
