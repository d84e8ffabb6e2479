//! GET /job/list

use tarn_api::jobs::JobListResponse;
use tarn_control::operations::jobs;

use super::view;
use crate::http::input::call::ReadCall;
use crate::http::input::listing::ListQuery;
use crate::http::input::query::Params;
use crate::http::output::response::{EndpointResult, JsonResponse};
use crate::http::output::table::append_next_page;

/// List jobs
///
/// The jobs that the caller created or, with include_org, all jobs of the organization, newest first.
#[utoipa::path(
    get,
    path = "/job/list",
    operation_id = "job_list",
    params(ListQuery),
    responses(
        (status = 200, description = "The jobs", body = JobListResponse),
        (status = 400, description = "Invalid cursor"),
    ),
)]
pub(crate) async fn list_jobs(call: ReadCall, Params(listing): Params<ListQuery>) -> EndpointResult<JobListResponse> {
    let page = jobs::list(&call.control, &call.caller, listing.into()).await?;
    let mut message = match page.items.as_slice() {
        [] => "No jobs. Start with `tp job init`.".to_owned(),
        items => view::job_table(items),
    };
    append_next_page(&mut message, page.next_cursor.as_deref());
    let jobs = page.items.into_iter().map(view::job_info).collect();
    Ok(JsonResponse::ok(JobListResponse { jobs, next_cursor: page.next_cursor, message }))
}
